"""The pages that bench/ generates from committed results.

usage: bench_pages_test.py SOURCE_DIR BINARY_DIR
"""
import json
import pathlib
import sys
import tempfile
import unittest

from bench_support import BENCH, SOURCE, ScriptTest, output_of


class Page(ScriptTest):
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

    def test_a_sanitizers_errors_stand_beside_what_is_known_of_them(self):
        counts = {"passed": 3, "failed": 0, "skipped": 0, "errors": 2}
        result = self.result() | {"sanitize": {"memcheck": counts, "racecheck": counts | {"note": "of a tool"}}}
        page = self.page(a=result)
        self.assertIn("| kernels under memcheck | 3 | 0 | 0 | 2 |  |", page)
        self.assertIn("| kernels under racecheck | 3 | 0 | 0 | 2 | of a tool |", page)

    def test_cards_stand_apart_and_later_files_count(self):
        page = self.page(a=self.result(), b=self.result(tokens_per_s_per_gpu=55000.0), c=self.result(card="NVIDIA H100 80GB HBM3"))
        h100, h200 = page.split("## NVIDIA H100 80GB HBM3")[1].split("## NVIDIA H200")
        self.assertIn("50.0k (", h100)
        self.assertIn("55.0k (", h200)
        self.assertNotIn("50.0k (", h200)

    def test_what_is_no_result_is_refused(self):
        with self.assertRaisesRegex(AssertionError, "not a result"):
            self.page(a={"card": "NVIDIA H200"})

    def test_committed_pages_are_what_the_generators_give(self):
        for script, page in (("table.py", "benchmarks.md"), ("performance.py", "performance.md")):
            committed = (SOURCE / "docs" / page).read_text(encoding="utf-8")
            self.assertEqual(output_of(sys.executable, "-B", BENCH / script), committed, f"run `make docs`: {page} is not up to date")

    def test_a_page_tells_what_was_predicted_of_a_step_where_it_was(self):
        seconds = 16384 / 50000
        self.assertNotIn("planned step s", self.page(a=self.result()))
        self.assertIn(f"| {seconds * 0.95:.3f} (-5.0 %) |", self.page(a=self.result(predicted_step_s=seconds * 0.95)))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
