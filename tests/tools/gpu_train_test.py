"""bench/gpu_train and its peers, on the CPU: shapes, rows, tuning.

usage: gpu_train_test.py SOURCE_DIR BINARY_DIR
"""
import contextlib
import dataclasses
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from bench_support import BENCH, BUILD, ORACLE, SOURCE, ScriptTest, has_ended, output_of, program, script


class Rows(ScriptTest):
    def test_peers_have_the_shapes_of_our_models(self):
        from shapes import SHAPES

        ours = json.loads(output_of(BUILD / "trireme", "bench", "models"))
        self.assertEqual(list(ours), list(SHAPES))
        for name, shape in SHAPES.items():
            theirs = {"hidden_size": shape.width, "intermediate_size": shape.inner, "num_layers": shape.layers, "num_heads": shape.heads,
                      "num_key_value_heads": shape.key_value_heads, "head_dim": shape.head, "vocabulary_rows": shape.rows,
                      "gated": shape.family == "llama", "tied": shape.tied, "matmul_weights": shape.matmul_weights,
                      "flops_per_token_at_1024": shape.flops_per_token(1024)}
            self.assertEqual({key: ours[name][key] for key in theirs}, theirs, name)

    def test_a_row_joins_the_floor_ours_and_the_best_peer(self):
        # In place of Python: the second peer is faster, the third fails.
        python = program(self.folder / "python", f"""#!/bin/sh
for word; do last=$word; done
case "$*" in *fsdp2*) speed=200;; *zero*) echo no such device >&2; exit 1;; *) speed=100;; esac
echo '{{"system": "peer '$speed'", "micro_batch": 2, "accumulate": 1, "tokens_per_s_per_gpu": '$speed'}}' > $last
""")
        gpu_train = script("gpu_train")
        gpu_train.TRIREME, gpu_train.PYTHON = BUILD / "trireme", str(python)
        row = gpu_train.Row("tiny", 32, 2, peers=(gpu_train.DDP, gpu_train.FSDP2, gpu_train.ZERO3))
        *_, result = gpu_train.measure("a row", row, gpu_train.Options(steps=3, warm_up=1, floor=0.01, peers=True), with_cold=True)
        self.assertEqual((result["row"], result["model"], result["steps"]), ("a row", "tiny", 3))
        self.assertEqual((result["peer"], result["peer_tokens_per_s_per_gpu"]), ("peer 200", 200))
        self.assertEqual([peer["system"] for peer in result["peers"]], ["peer 100", "peer 200"])
        self.assertEqual(result["peer_failures"], {gpu_train.ZERO3: "no such device"})
        self.assertGreater(result["floor_tokens_per_s_per_gpu"], 0)
        self.assertGreater(result["first_step_cold_s"], 0)

    def test_tuning_finds_the_two_fastest_peers_and_says_what_became_of_the_others(self):
        # In place of Python: the larger the micro-batch the faster, until there is no memory; one takes too long.
        python = program(self.folder / "python", """#!/bin/sh
for word; do last=$word; done
case "$*" in
  *"--micro-batch 8"*) echo torch.OutOfMemoryError: CUDA out of memory >&2; exit 1;;
  *"--compile model "*"--micro-batch 1"*) sleep 60 & echo $! > FOLDER/sleeps; wait;;
  *"--compile model "*"--micro-batch 4"*) speed=42;; *"--micro-batch 4"*) speed=40;; *"--micro-batch 2"*) speed=20;; *) speed=10;;
esac
echo '{"system": "peer", "micro_batch": 4, "accumulate": 2, "tokens_per_s_per_gpu": '$speed'}' > $last
""".replace("FOLDER", str(self.folder)))
        gpu_train = script("gpu_train")
        gpu_train.TRIREME, gpu_train.PYTHON = BUILD / "trireme", str(python)
        gpu_train.ROWS["other"] = gpu_train.Row("tiny", 32, 4, accumulate=2, peers=(gpu_train.DDP,))
        file = self.folder / "tuned.json"
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(gpu_train.main(["other", "--tune", str(file), "--tune-limit", "2", "--tune-compile", "block", "model"]), 0)
        tuned = json.loads(file.read_text(encoding="utf-8"))["other"]
        words = "torch_peer.py --mode ddp --compile {} --micro-batch {} --accumulate {}".format
        self.assertEqual(tuned["best"], [words("model", 4, 2), words("block", 4, 2)])
        tried = {one["peer"]: one for one in tuned["tried"]}
        self.assertEqual(set(tried), {words(how, size, 8 // size) for how in ("block", "model") for size in (1, 2, 4, 8)})
        self.assertTrue(tried[words("model", 8, 1)]["out_of_memory"])
        self.assertEqual(tried[words("model", 1, 8)], {"peer": words("model", 1, 8), "failure": "took longer than 2 s", "out_of_memory": False})
        sleeps = int((self.folder / "sleeps").read_text(encoding="ascii"))
        self.assertTrue(has_ended(sleeps), "what took too long still runs")
        # What was found is what a later call measures beside ours.
        output = self.folder / "rows.json"
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(gpu_train.main(["other", "--tuned", str(file), "--steps", "2", "--warm-up", "1", "--floor", "0.01", "--no-cold",
                                             "--output", str(output)]), 0)
        row = json.loads(output.read_text(encoding="utf-8"))["rows"][0]
        self.assertEqual([peer["tokens_per_s_per_gpu"] for peer in row["peers"]], [42, 40])
        self.assertNotIn("first_step_cold_s", row)

    def test_a_program_that_takes_too_long_is_a_failed_row(self):
        gpu_train = script("gpu_train")
        gpu_train.TRIREME = program(self.folder / "trireme", "#!/bin/sh\nexec sleep 60\n")
        output = self.folder / "rows.json"
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(gpu_train.main(["tiny", "--no-cold", "--timeout", "0.5", "--output", str(output)]), 1)
        self.assertEqual(json.loads(output.read_text(encoding="utf-8"))["rows"], [{"row": "tiny", "failure": "took longer than 0.5 s"}])

    def test_what_is_cut_short_ends_its_programs_and_keeps_what_it_has(self):
        sleeps, output = self.folder / "sleeps", self.folder / "rows.json"
        python = program(self.folder / "python", f"#!/bin/sh\nsleep 60 & echo $! > {sleeps}\nkill $PPID\nwait\n")
        command = [sys.executable, "-B", BENCH / "gpu_train", "tiny", "--steps", "2", "--warm-up", "1", "--floor", "0.01", "--no-cold", "--output", output]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TRIREME_BUILD": str(BUILD), "TRIREME_PYTHON": str(python)}
        self.assertNotEqual(subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode, 0)
        self.assertTrue(has_ended(int(sleeps.read_text(encoding="ascii"))), "its peer still runs")
        row = json.loads(output.read_text(encoding="utf-8"))["rows"][0]
        self.assertEqual((row["row"], row["steps"], "peers" in row), ("tiny", 2, False))

    def test_tuning_reshards_only_where_there_are_several_and_ends_when_its_time_is_over(self):
        import tuning

        gpu_train = script("gpu_train")
        row = gpu_train.Row("tiny", 32, 2, peers=(gpu_train.FSDP2_KEPT, gpu_train.ZERO3))
        alone, pair = (list(tuning.candidates(dataclasses.replace(row, gpus=gpus))) for gpus in (1, 2))
        self.assertEqual((len(alone), len(pair)), (2 * 3 + 2 * 3, 2 * 3 * 2 + 2 * 3))
        self.assertTrue(any("--reshard no" in words for words in pair) and not any("--reshard no" in words for words in alone))
        result = tuning.tune(row, lambda words: self.fail("it ran"), seconds=-1)
        self.assertEqual(result["best"], [])
        self.assertTrue(all("not tried" in one["failure"] for one in result["tried"]))

    def test_unknown_rows_are_refused_with_the_known_ones(self):
        done = subprocess.run([sys.executable, "-B", BENCH / "gpu_train", "llama"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("llama-1b", done.stderr)


class Peers(unittest.TestCase):
    def setUp(self):
        if not (ORACLE.exists() and any(SOURCE.glob(".deps/oracle/lib/*/site-packages/torch"))):
            self.skipTest("no Python with torch: scripts/setup.sh --tests")

    def row(self, *arguments, model="tiny", ranks=1):
        launcher = [] if ranks == 1 else ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command = [ORACLE, "-B", *launcher, BENCH / "peers/torch_peer.py", "--model", model, "--seq", 32, "--micro-batch", 2, "--steps", 2,
                   "--warm-up", 1, "--compile", "none", *arguments]
        lines = output_of(*command, env=os.environ | {"OMP_NUM_THREADS": "1"}).splitlines()
        return json.loads(lines[-1])

    def test_they_are_tuned_and_the_best_is_measured_beside_ours(self):
        with tempfile.TemporaryDirectory() as folder:
            tuned, output = pathlib.Path(folder, "tuned.json"), pathlib.Path(folder, "rows.json")
            environment = os.environ | {"OMP_NUM_THREADS": "1", "TRIREME_BUILD": str(BUILD), "TRIREME_PYTHON": str(ORACLE)}
            train = lambda *more: output_of(sys.executable, "-B", BENCH / "gpu_train", "tiny", *more, env=environment)
            train("--tune", tuned, "--tune-steps", 2, "--tune-compile", "none", "nonsense")
            found = json.loads(tuned.read_text(encoding="utf-8"))["tiny"]
            sizes = {words.partition("--micro-batch ")[2] for words in found["best"]}
            self.assertEqual(sizes, {"2 --accumulate 1", "1 --accumulate 2"})
            failures = {one["peer"]: one["failure"] for one in found["tried"] if "failure" in one}
            self.assertEqual(len(failures), 2)
            self.assertTrue(all("nonsense" in words and "invalid choice" in failure for words, failure in failures.items()), failures)
            train("--tuned", tuned, "--steps", 2, "--warm-up", 1, "--floor", 0.01, "--output", output)
            peers = json.loads(output.read_text(encoding="utf-8"))["rows"][0]["peers"]
            self.assertEqual({(peer["micro_batch"], peer["accumulate"]) for peer in peers}, {(2, 1), (1, 2)})

    def test_they_train_and_write_rows(self):
        for mode in ("ddp", "fsdp2"):
            row = self.row("--mode", mode, "--accumulate", 2, ranks=2)
            self.assertEqual((row["ranks"], row["strategy"], row["tokens_per_step"]), (2, mode, 2 * 2 * 2 * 32))
            self.assertAlmostEqual(row["first_loss"], 6.21, delta=0.15)  # ln(500)
            self.assertLess(row["last_loss"], row["first_loss"])  # it sees the same tokens again
        self.assertAlmostEqual(self.row(model="tiny-gpt2")["first_loss"], 10.83, delta=0.15)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
