#!/usr/bin/env python3
"""live_oracles_test.py SOURCE_FOLDER BINARY: configurations that are drawn by a seed go to DeepSpeed's own class and to transformers'
Trainer, and to the tests that compare goldens (trireme_train_tests). The goldens must still be what the tools say, too.

The draws take turns by day, all of which were seen to pass, so that a red test means a change; TRIREME_LIVE_SEED asks for
another one. Exit code 77 where .deps/oracle has not the tools.
"""
import os
import subprocess
import sys
import tempfile
import time

DRAWN = {"deepspeed": 2500, "trainer": 800}


def main():
    folder, binary = sys.argv[1:]
    python, tools = (os.path.join(folder, ".deps/oracle", name) for name in ("bin/python", "source/deepspeed-0.19.6"))
    if not os.path.exists(python):
        print(f"skipped: there is no {python} (scripts/setup.sh --tests)")
        return 77
    seed = os.environ.get("TRIREME_LIVE_SEED") or str(int(time.time()) // 86400 % 32)
    print(f"TRIREME_LIVE_SEED={seed}", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory() as drawn:
        for name, count in DRAWN.items():
            script, file = os.path.join(folder, f"tests/config/{name}_oracle.py"), name + ".jsonl"
            for action in (["check", tools, os.path.join(folder, "tests/config/goldens", file)],
                           ["draw", tools, os.path.join(drawn, file), seed, str(count)]):
                code = subprocess.run([python, script, *action], check=False).returncode
                if code == 77:
                    return 77
                failed += code != 0
        failed += subprocess.run([binary, "--gtest_brief=1", "--gtest_filter=DeepSpeedOracle.*:TrainerOracle.*"],
                                 env={**os.environ, "TRIREME_DRAWN": drawn}, check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
