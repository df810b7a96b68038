#!/usr/bin/env python3
"""What another tool makes of a random sample of configurations, compared with ours by a test of goldens.

  live_oracle.py SOURCE SCRIPT BINARY TEST [ARGUMENT ...]

SCRIPT (see oracle.py) writes the sample, with ARGUMENTs before it; TEST of the googletest BINARY reads it instead of its
goldens. Seeds take turns by day, all of which were seen to pass, so that a red test means a change; TRIREME_LIVE_SEED asks for
another one. Exit code 77 where the environment or the tool is missing.
"""
import os
import subprocess
import sys
import tempfile
import time

source, script, binary, test, *arguments = sys.argv[1:]
python = os.path.join(source, ".deps/oracle/bin/python")
if not os.path.exists(python):
    print("skipped: .deps/oracle is missing (scripts/setup.sh --tests makes it)")
    sys.exit(77)
seed = os.environ.get("TRIREME_LIVE_SEED") or str(int(time.time()) // 86400 % 32)
print(f"TRIREME_LIVE_SEED={seed}", flush=True)
with tempfile.TemporaryDirectory() as folder:
    sample = os.path.join(folder, "sample.jsonl")
    command = [python, "-B", "-W", "ignore", os.path.join(source, "tests/config", script), "sample", *arguments, seed, sample]
    made = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if made.returncode != 0:
        print(made.stderr if made.returncode != 77 else "", end="")
        sys.exit(made.returncode)
    environment = {**os.environ, "TRIREME_ORACLE_SAMPLE": sample}
    sys.exit(subprocess.run([binary, "--gtest_filter=" + test], env=environment, check=False).returncode)
