"""bench/gpu_suite and the folder that is carried, where there may be no GPU.

usage: gpu_suite_test.py SOURCE_DIR BINARY_DIR
"""
import json
import os
import sys
import unittest
import unittest.mock

from bench_support import BENCH, BUILD, ScriptTest, has_ended, output_of, program, script


class Suite(ScriptTest):
    def test_rates_are_kept_where_plans_look_for_them(self):
        gpu_suite = script("gpu_suite")
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

    def test_tests_are_counted_from_their_report(self):
        gpu_suite = script("gpu_suite")
        test = lambda name, result, **more: {"name": name, "status": "RUN", "result": result, **more}
        report = {"testsuites": [
            {"name": "DeviceA", "testsuite": [test("one", "COMPLETED"), test("two", "COMPLETED", failures=[{}]), test("three", "SKIPPED")]},
            {"name": "DeviceB", "testsuite": [test("one", "COMPLETED"), {"name": "two", "status": "NOTRUN", "result": "SUPPRESSED"}]},
        ]}
        self.assertEqual(gpu_suite.counts_of(report), {"passed": 2, "failed": 1, "skipped": 1, "failures": ["DeviceA.two"]})

    def test_a_binary_that_dies_has_failed_as_a_whole(self):
        gpu_suite = script("gpu_suite")
        tests = self.folder / "build/tests"
        tests.mkdir(parents=True)
        program(tests / "dies", "#!/bin/sh\necho an illegal address\nkill -SEGV $$\n")
        counts, _ = gpu_suite.run_tests(self.folder, "dies", ["A.one", "A.two"], timeout=60)
        self.assertEqual((counts["passed"], counts["failed"], counts["ended"]), (0, 2, -11))
        self.assertIn("an illegal address", counts["output"])

    def test_what_takes_too_long_is_ended_with_all_that_it_started(self):
        gpu_suite = script("gpu_suite")
        child = self.folder / "child"
        hangs = program(self.folder / "hangs", f"#!/bin/sh\nsetsid sleep 600 &\necho $! > {child}\necho began\nwait\n")
        output, ended = gpu_suite.run_limited(self.folder, [hangs], timeout=3)
        self.assertEqual((output, ended), (b"began\n", "took longer than 3 s"))
        self.assertTrue(has_ended(int(child.read_text(encoding="ascii"))))

    def test_each_kernel_test_is_sanitized_by_itself(self):
        gpu_suite = script("gpu_suite")
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
            runs = gpu_suite.sanitize(self.folder, "racecheck", ["A.0", "A.2", "A.ends"], timeout=60)
            totals = [json.loads(json.dumps(total)) for total in runs]
        total = totals[-1]
        self.assertTrue(gpu_suite.can_be_sanitized("DeviceGemm.HasTheProductsOfTheFormula", "memcheck"))
        self.assertFalse(gpu_suite.can_be_sanitized("DeviceGemm.HasTheProductsOfTheFormula", "racecheck"))
        self.assertEqual((total["passed"], total["failed"], total["errors"]), (3, 0, 2))
        self.assertEqual(set(total["unclean"]), {"A.2", "A.ends"})
        self.assertEqual([one["passed"] for one in totals], [1, 2, 3])  # what has ended is not lost with what does not end

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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
