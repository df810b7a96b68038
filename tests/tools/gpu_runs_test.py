"""The scripts of bench/ that train for more than a row, on ranks of the CPU.

usage: gpu_runs_test.py SOURCE_DIR BINARY_DIR
"""
import json
import os
import re
import subprocess
import sys
import types
import unittest

from bench_support import BENCH, BUILD, ScriptTest, script


class Runs(ScriptTest):
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
        for options, failed in ((("no",), []), (("bf16",), []), (("no", "--bound", -1), ["follows the CPU"])):
            command = [sys.executable, "-B", BENCH / "text_run", "--device", "cpu", "--steps", 4, "--threads", 1, "--output", output,
                       "--precision", *options]
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                                  env=os.environ | {"TRIREME_BUILD": str(BUILD)})
            self.assertEqual((done.returncode, done.stderr), (1 if failed else 0, ""), done.stdout)
            checks = json.loads(output.read_text(encoding="utf-8"))["checks"]
            self.assertEqual([check["check"] for check in checks if not check["passed"]], failed)
            self.assertIn("from step 2 on", checks[3]["words"])
            if options == ("bf16",):  # on the CPU, as it is the CPU's own run
                self.assertGreater(checks[1]["largest_difference"], 0)
                self.assertEqual(checks[1]["limit"], 2 * checks[1]["largest_difference"])

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
        exercise = script("exercise_zero3")
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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
