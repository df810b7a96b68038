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
import re
import stat
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

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


def has_ended(process):
    """Within seconds: who was killed is still there until its processor comes to it."""
    status = pathlib.Path(f"/proc/{process}/stat")
    for _ in range(200):
        try:
            if status.read_text(encoding="ascii").split()[2] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


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
        result = gpu_train.measure("a row", row, gpu_train.Options(steps=3, warm_up=1, floor=0.01, peers=True), with_cold=True)
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
        gpu_train = module("gpu_train")
        gpu_train.TRIREME = program(self.folder / "trireme", "#!/bin/sh\nexec sleep 60\n")
        output = self.folder / "rows.json"
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(gpu_train.main(["tiny", "--no-cold", "--timeout", "0.5", "--output", str(output)]), 1)
        self.assertEqual(json.loads(output.read_text(encoding="utf-8"))["rows"], [{"row": "tiny", "failure": "took longer than 0.5 s"}])

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

    def exercise(self, *more):
        """bench/exercise_zero3 with a model of no size on two ranks of the CPU: its exit code, {check: line}, and JSON."""
        output = self.folder / "exercise.json"
        command = [sys.executable, "-B", BENCH / "exercise_zero3", "--device", "cpu", "--model", "tiny", "--seq", "32", "--micro-batch", "2",
                   "--fit-micro-batch", "2", "--steps", "3", "--warm-up", "1", "--folder", self.folder, "--output", output, *more]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                              env=os.environ | {"TRIREME_BUILD": str(BUILD)})
        self.assertEqual(done.stderr, "")
        lines = [re.fullmatch(r"(PASS|FAIL) ([^:]*): (.*)", line, re.DOTALL).groups() for line in done.stdout.splitlines()]
        self.assertEqual([path.name for path in self.folder.iterdir()], ["exercise.json"])
        return done.returncode, {check: (how, words) for how, check, words in lines}, json.loads(output.read_text(encoding="utf-8"))

    def test_the_exercise_of_zero3_passes_with_the_same_bits_after_a_kill(self):
        code, lines, result = self.exercise("--run-steps", 400, "--save-interval", 20, "--limit-gb", 4)
        self.assertEqual([how for how, _ in lines.values()], ["PASS"] * 6, lines)
        self.assertEqual((code, result["passed"], len(result["checks"])), (0, True, 6))
        self.assertIn("no DeepSpeed on the CPU", lines["tokens/s"][1])
        self.assertRegex(lines["is killed"][1], "3 processes, after step [0-9]+ of 400")
        self.assertIn("400 losses", lines["reloads bit-equal"][1])

    def test_the_exercise_of_zero3_fails_where_it_does_not_fit_is_slow_or_ends_before_it_is_killed(self):
        code, lines, result = self.exercise("--run-steps", 4, "--save-interval", 4, "--limit-gb", 0.001, "--least-of-ddp", 1000)
        failed = ["fits", "tokens/s", "is killed", "reloads bit-equal"]
        self.assertEqual([check for check, (how, _) in lines.items() if how == "FAIL"], failed, lines)
        self.assertEqual([check["check"] for check in result["checks"] if not check["passed"]], failed)
        self.assertEqual((code, result["passed"]), (1, False))
        self.assertIn("limit 0.001", lines["fits"][1])
        self.assertIn("less than 1000 of DDP", lines["tokens/s"][1])

    def test_a_run_on_text_is_compared_with_the_cpus_with_itself_and_with_one_that_resumes(self):
        output = self.folder / "text.json"
        for bound, failed in ((None, []), (-1, ["follows the CPU"])):
            command = [sys.executable, "-B", BENCH / "text_run", "--device", "cpu", "--steps", 4, "--threads", 1, "--precision", "no",
                       "--output", output, *(() if bound is None else ("--bound", bound))]
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                                  env=os.environ | {"TRIREME_BUILD": str(BUILD)})
            self.assertEqual((done.returncode, done.stderr), (1 if failed else 0, ""), done.stdout)
            checks = json.loads(output.read_text(encoding="utf-8"))["checks"]
            self.assertEqual([check["check"] for check in checks if not check["passed"]], failed)
            self.assertIn("from step 2 on", checks[3]["words"])

    def test_weak_scaling_compares_ranks_together_with_each_by_itself_and_says_what_communication_costs(self):
        output = self.folder / "scaling.json"
        command = [sys.executable, "-B", BENCH / "weak_scaling", "--device", "cpu", "--models", "tiny", "--gpus", 2, "--steps", 3,
                   "--pairs", 2, "--strategies", "full_shard", "--output", output]
        for bounds, passes in ((("--least", 0, "--most-exposed", 2), True), (("--least", 1000, "--most-exposed", 2), False),
                               (("--least", 0, "--most-exposed", 0), False)):
            done = subprocess.run([str(word) for word in (*command, *bounds)], capture_output=True, text=True, check=False,
                                  env=os.environ | {"TRIREME_BUILD": str(BUILD)})
            self.assertEqual((done.returncode, done.stderr), (0 if passes else 1, ""), done.stdout)
            self.assertRegex(done.stdout, f"^{'PASS' if passes else 'FAIL'} tiny on 2, full_shard: [0-9]+ tokens/s a card at 64 tokens")
            result = json.loads(output.read_text(encoding="utf-8"))
            self.assertEqual([row["ranks"] for row in result["rows"]], [1, 1, 2])
            self.assertEqual([one["passed"] for one in result["checks"]], [passes])
            self.assertGreater(result["rows"][2]["exposed_communication"]["communication_s"], 0)
            speeds = [row["tokens_per_s_per_gpu"] for row in result["rows"]]
            self.assertAlmostEqual(result["checks"][0]["of_alone"], 2 * speeds[2] / (speeds[0] + speeds[1]))

    def test_who_is_left_by_a_killed_rank_ends(self):
        output = self.folder / "killed.json"
        for limit, code in ((60, 0), (0.001, 1)):
            command = [sys.executable, "-B", BENCH / "killed_rank", "--device", "cpu", "--limit", limit, "--output", output]
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                                  env=os.environ | {"TRIREME_BUILD": str(BUILD)})
            self.assertEqual((done.returncode, done.stderr), (code, ""), done.stdout)
            words = [check["words"] for check in json.loads(output.read_text(encoding="utf-8"))["checks"]]
            for one, expected in zip(words, ["still there after 0.001 s"] * 3 if code else ["TR1101: rank 1", "TR1101: rank 0", "TR1112"]):
                self.assertIn(expected, one)

    def test_a_run_with_other_bits_is_not_the_same(self):
        exercise = module("exercise_zero3")
        options = types.SimpleNamespace(model="tiny", seq=32, micro_batch=2, gpus=2)
        tried = exercise.Exercise(options, self.folder)
        (self.folder / "a").mkdir()
        record = lambda step, loss: json.dumps({"step": step, "loss": loss}) + "\n"
        metrics = self.folder / "a/metrics.jsonl"
        metrics.write_text(record(1, 5.5) + record(2, 5.25) + '{"step": 3, "lo', encoding="utf-8")
        self.assertEqual(tried.losses("a"), {1: 5.5, 2: 5.25})

        def digest(run, data):
            header = json.dumps({"__metadata__": {"run_id": run}, "w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
            file = self.folder / "x.safetensors"
            file.write_bytes(len(header).to_bytes(8, "little") + header + data)
            return exercise.runs.digest(file)

        self.assertEqual(digest("one", b"1234"), digest("other", b"1234"))
        self.assertNotEqual(digest("one", b"1234"), digest("one", b"1235"))

    def test_rates_are_kept_where_plans_look_for_them(self):
        gpu_suite = module("gpu_suite")
        kept = self.folder / "cache/rates.json"
        kept.parent.mkdir()
        bench = program(self.folder / "bench", f"""#!/bin/sh
for word; do file=$word; done
case $file in */result.json) ;; *) file={kept}; echo "  memory 3 bytes/s"; echo "written to $file";; esac
echo '{{"words": "'$#'"}}' > $file
""")
        self.assertEqual(gpu_suite.run_benchmark(self.folder, "kernels", [bench, "a"], 60), {"bench": "kernels", "words": "3"})
        self.assertFalse(kept.exists())
        self.assertEqual(gpu_suite.run_benchmark(self.folder, gpu_suite.RATES, [bench, "a"], 60), {"bench": "rates", "words": "1"})
        self.assertTrue(kept.exists())

    def test_a_page_tells_what_was_predicted_of_a_step_where_it_was(self):
        performance = module("performance.py")
        committed = json.loads((BENCH / "results/gpu/h200_qwen_7b.json").read_text(encoding="utf-8"))
        row = next(row for bench in committed["bench"] for row in bench["rows"] if "tokens_per_step" in row)
        seconds = row["tokens_per_step"] / row["tokens_per_s_per_gpu"]
        self.assertNotIn("planned step s", performance.training_row(row))
        told = performance.training_row(row | {"predicted_step_s": seconds * 0.95})
        self.assertEqual(told["planned step s"], f"{seconds * 0.95:.3f} (-5.0 %)")

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

    def test_what_takes_too_long_is_ended_with_all_that_it_started(self):
        gpu_suite = module("gpu_suite")
        child = self.folder / "child"
        hangs = program(self.folder / "hangs", f"#!/bin/sh\nsetsid sleep 600 &\necho $! > {child}\necho began\nwait\n")
        output, ended = gpu_suite.run_limited(self.folder, [hangs], timeout=3)
        self.assertEqual((output, ended), (b"began\n", "took longer than 3 s"))
        self.assertTrue(has_ended(int(child.read_text(encoding="ascii"))))

    def test_each_kernel_test_is_sanitized_by_itself(self):
        gpu_suite = module("gpu_suite")
        tests = self.folder / "build/tests"
        tests.mkdir(parents=True)
        program(tests / gpu_suite.KERNEL_TESTS, "#!/bin/sh\nexit 1\n")
        report = {"testsuites": [{"name": "A", "testsuite": [{"name": "test", "result": "COMPLETED"}]}]}
        (self.folder / "report").write_text(json.dumps(report), encoding="utf-8")
        # Of a test it finds as many hazards as its name ends with, and writes the report as the test would.
        program(self.folder / "compute-sanitizer", f"""#!/bin/sh
for word; do case $word in
  --gtest_filter=*) test=${{word#*=}};;
  --gtest_output=*) cp {self.folder}/report "${{word#*:}}";;
esac; done
[ $test = A.ends ] && exit 77
echo "RACECHECK SUMMARY: ${{test#A.}} hazards displayed"
""")
        path = os.environ["PATH"]
        with unittest.mock.patch.dict(os.environ, {"PATH": f"{self.folder}:{path}"}):
            total = gpu_suite.sanitize(self.folder, "racecheck", ["A.0", "A.2", "A.ends"], timeout=60)
        self.assertEqual((total["passed"], total["failed"], total["errors"]), (3, 0, 2))
        self.assertEqual(list(total["unclean"]), ["A.2", "A.ends"])

    def test_a_packed_build_runs_its_tests_and_says_where_there_is_no_card(self):
        if not (BUILD / "libtrireme_cuda.so").exists():
            self.skipTest("built without a CUDA 13 toolkit")
        packed, result = self.folder / "packed", self.folder / "result.json"
        output_of(sys.executable, "-B", BENCH / "gpu_pack", packed, "--build", BUILD)
        said = output_of(sys.executable, "-B", packed / "bench/gpu_suite", packed, "--output", result, "--tests", "^DeviceBias",
                         "--only", "^none")
        output_of(sys.executable, "-B", packed / "bench/exercise_zero3", "--help")
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
           "memory_before_bytes": 2**29, "planned_memory_bytes": 31 * 2**30,
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
                     "| 32.0 | 31.5 (-1.6 %) | 2.0 / 9.0 |"):
            self.assertIn(cell, page)

    def test_what_is_in_host_memory_stands_beside_the_strategy(self):
        self.assertIn("| zero3, optimizer in host memory |", self.page(a=self.result(strategy="zero3", offload_optimizer=True, offload_param=False)))
        self.assertIn("| ddp |", self.page(a=self.result(offload_optimizer=False)))

    def test_collectives_and_the_exercise_stand_beside_each_other(self):
        row = {"collective": "all_gather", "dtype": "bfloat16", "bytes": 2**20, "seconds": 1e-4, "bus_bytes_per_s": 5e9}
        comm = {"bench": "comm", "ranks": 2, "through": "copies", "rows": [row | {"beside_products": False},
                                                      row | {"beside_products": True, "seconds": 2e-4, "bus_bytes_per_s": 2.5e9}]}
        check = {"check": "fits", "passed": False, "words": "at most 13.1 GB"}
        exercise = {"bench": "exercise zero3", "model": "gpt2-xl", "gpus": 2, "checks": [check], "failure": "FAIL fits"}
        text = {"bench": "text run", "model": "200 steps, bf16", "gpus": 1, "checks": [check | {"check": "repeats", "passed": True}]}
        page = self.page(a=self.result() | {"bench": [comm, exercise, text]})
        self.assertIn("| 2 | copies | all_gather | bfloat16 | 1048576 | 100.0 | 5.00 | 200.0 | 2.50 |", page)
        self.assertIn("| gpt2-xl | 2 | fits | FAIL | at most 13.1 GB |", page)
        self.assertIn("| 200 steps, bf16 | 1 | repeats | PASS | at most 13.1 GB |", page)

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
