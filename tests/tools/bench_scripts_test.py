"""The scripts of bench/ that measure on GPUs, without one: shapes, joins, counts, the folder that is carried, and the generated pages.

usage: bench_scripts_test.py SOURCE_DIR BINARY_DIR
"""
import contextlib
import dataclasses
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = map(pathlib.Path, sys.argv[1:3])
BENCH = SOURCE / "bench"
ORACLE = SOURCE / ".deps/oracle/bin/python"
sys.path[:0] = [str(BENCH), str(BENCH / "peers")]


def module(name):
    loader = importlib.machinery.SourceFileLoader(name, str(BENCH / name))
    loaded = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = loaded
    loader.exec_module(loaded)
    return loaded


def output_of(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


def program(path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


class Scripts(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

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

    def test_committed_pages_are_what_the_generators_give(self):
        for script, page in (("table.py", "benchmarks.md"), ("performance.py", "performance.md")):
            committed = (SOURCE / "docs" / page).read_text(encoding="utf-8")
            self.assertEqual(output_of(sys.executable, "-B", BENCH / script), committed, f"run `make docs`: {page} is not up to date")

    def test_a_row_joins_the_floor_ours_and_the_best_peer(self):
        # In place of Python: the second peer is faster, the third fails.
        python = program(self.folder / "python", f"""#!/bin/sh
for word; do last=$word; done
case "$*" in *fsdp2*) speed=200;; *zero*) echo no such device >&2; exit 1;; *) speed=100;; esac
echo '{{"system": "peer '$speed'", "micro_batch": 2, "accumulate": 1, "tokens_per_s_per_gpu": '$speed'}}' > $last
""")
        gpu_train = module("gpu_train")
        gpu_train.TRIREME, gpu_train.PYTHON = BUILD / "trireme", str(python)
        row = gpu_train.Row("tiny", 32, 2, peers=(gpu_train.DDP, gpu_train.FSDP2, gpu_train.ZERO3))
        result = gpu_train.measure("a row", row, gpu_train.Options(steps=3, warm_up=1, floor=0.01, peers=True), is_first=True)
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
        gpu_train = module("gpu_train")
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
        sleeps = pathlib.Path("/proc", (self.folder / "sleeps").read_text(encoding="ascii").strip(), "stat")
        self.assertTrue(not sleeps.exists() or ") Z " in sleeps.read_text(encoding="ascii"), "what took too long still runs")
        # What was found is what a later call measures beside ours.
        output = self.folder / "rows.json"
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(gpu_train.main(["other", "--tuned", str(file), "--steps", "2", "--warm-up", "1", "--floor", "0.01", "--output",
                                             str(output)]), 0)
        row = json.loads(output.read_text(encoding="utf-8"))["rows"][0]
        self.assertEqual([peer["tokens_per_s_per_gpu"] for peer in row["peers"]], [42, 40])

    def test_tuning_reshards_only_where_there_are_several_and_ends_when_its_time_is_over(self):
        import tuning

        gpu_train = module("gpu_train")
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

    def test_tests_are_counted_from_their_report(self):
        gpu_suite = module("gpu_suite")
        test = lambda name, result, **more: {"name": name, "status": "RUN", "result": result, **more}
        report = {"testsuites": [
            {"name": "DeviceA", "testsuite": [test("one", "COMPLETED"), test("two", "COMPLETED", failures=[{}]), test("three", "SKIPPED")]},
            {"name": "DeviceB", "testsuite": [test("one", "COMPLETED"), {"name": "two", "status": "NOTRUN", "result": "SUPPRESSED"}]},
        ]}
        self.assertEqual(gpu_suite.counts_of(report), {"passed": 2, "failed": 1, "skipped": 1, "failures": ["DeviceA.two"]})

    def test_a_binary_that_dies_has_failed_as_a_whole(self):
        gpu_suite = module("gpu_suite")
        tests = self.folder / "build/tests"
        tests.mkdir(parents=True)
        program(tests / "dies", "#!/bin/sh\necho an illegal address\nkill -SEGV $$\n")
        counts, _ = gpu_suite.run_tests(self.folder, "dies", ["A.one", "A.two"], timeout=60)
        self.assertEqual((counts["passed"], counts["failed"], counts["ended"]), (0, 2, -11))
        self.assertIn("an illegal address", counts["output"])

    def test_a_packed_build_runs_its_tests_and_says_where_there_is_no_card(self):
        if not (BUILD / "libtrireme_cuda.so").exists():
            self.skipTest("built without a CUDA 13 toolkit")
        packed, result = self.folder / "packed", self.folder / "result.json"
        output_of(sys.executable, "-B", BENCH / "gpu_pack", packed, "--build", BUILD)
        said = output_of(sys.executable, "-B", packed / "bench/gpu_suite", packed, "--output", result, "--tests", "^DeviceBias",
                         "--only", "^none")
        written = json.loads(result.read_text(encoding="utf-8"))
        counts = written["tests"]["trireme_device_tests"]
        self.assertEqual(counts["failed"], 0)
        self.assertEqual(counts["passed"] + counts["skipped"], 2)
        if written["card"] is None:
            self.assertEqual(counts["skipped"], 2)
            self.assertIn("no card here", said)


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


class Page(unittest.TestCase):
    ROW = {"row": "llama-1b", "model": "llama-1b", "gpus": 1, "sequence": 4096, "micro_batch": 4, "accumulate": 1,
           "tokens_per_step": 16384, "strategy": "ddp", "param_dtype": "bf16", "master_dtype": "fp32", "reduce_dtype": "fp32",
           "moment_dtype": "fp32", "recompute": "none", "clip": 1.0, "steps": 50, "tokens_per_s_per_gpu": 50000.0,
           "tokens_per_s_per_gpu_spread": [49000.0, 51000.0], "floor_tokens_per_s_per_gpu": 62500.0, "peak_memory_bytes": 2**35,
           "first_step_s": 2.0, "first_step_cold_s": 9.0, "mfu": 0.415, "peak_flops_per_s": 989.4e12, "peer": "torch ddp",
           "peer_tokens_per_s_per_gpu": 40000.0, "peers": []}

    def page(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                pathlib.Path(folder, name + ".json").write_text(json.dumps(content), encoding="utf-8")
            return output_of(sys.executable, "-B", BENCH / "performance.py", folder)

    def result(self, card="NVIDIA H200", **row):
        bench = [{"bench": "train llama-1b", "rows": [self.ROW | row]}]
        return {"card": card, "driver": "580", "commit": "abc", "tests": {}, "bench": bench}

    def test_without_results_it_says_so(self):
        self.assertIn("Nothing has been measured yet", self.page())

    def test_rows_stand_beside_floor_peer_and_peak(self):
        page = self.page(a=self.result())
        self.assertNotIn("Nothing has been measured yet", page)
        for cell in ("50.0k (49.0k-51.0k)", "| 62.5k | 0.800 |", "torch ddp: 40.0k | 1.250 |", "0.415 of 989.4 TFLOP/s",
                     "| 32.0 | 2.0 / 9.0 |"):
            self.assertIn(cell, page)

    def test_cards_stand_apart_and_later_files_count(self):
        page = self.page(a=self.result(), b=self.result(tokens_per_s_per_gpu=55000.0), c=self.result(card="NVIDIA H100 80GB HBM3"))
        h100, h200 = page.split("## NVIDIA H100 80GB HBM3")[1].split("## NVIDIA H200")
        self.assertIn("50.0k (", h100)
        self.assertIn("55.0k (", h200)
        self.assertNotIn("50.0k (", h200)

    def test_what_is_no_result_is_refused(self):
        with self.assertRaisesRegex(AssertionError, "not a result"):
            self.page(a={"card": "NVIDIA H200"})


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
