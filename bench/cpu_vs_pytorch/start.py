#!/usr/bin/env python3
"""start.py [--pairs N]: from the start of the processes to the first forward, beside PyTorch; writes bench/results/cpu_start.json.

The model of run.py, one rank and two with ddp. The programs take turns, and each is ended once its first forward has begun (ours after the step that it is part
of, whose record tells when that was). A ratio is PyTorch's time over ours in the same pair: above 1 we are sooner. Bytecode is cached and
the files of both are in memory: each runs once before.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import tempfile
import time

import programs
import run

RESULT = run.ROOT / "bench/results/cpu_start.json"


def first_forward_of_peer(case):
    start = time.time()
    processes = programs.start_peer("", False, case, 1)
    forward = json.loads(processes[0].stdout.readline())["forward"]
    for process in processes:
        process.kill()
        process.communicate()
    return forward - start


def first_forward_of_ours(folder, case):
    start = time.time()
    process = programs.start_ours("", folder, case, 100)
    while not (records := programs.step_records(folder / "run/metrics.jsonl")):
        if process.poll() is not None:
            raise SystemExit(f"trireme failed: {process.stderr.read().decode()}")
        time.sleep(0.001)
    first = time.time() - start - records[0]["step_seconds"] + records[0]["data_wait_seconds"]
    for pid, _ in programs.processes_of(process.pid):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    return first


def row_of(folder, case, pairs):
    first_forward_of_ours(folder, case), first_forward_of_peer(case)
    results = []
    for pair in range(pairs):
        if pair % 2:
            theirs, ours = first_forward_of_peer(case), first_forward_of_ours(folder, case)
        else:
            ours, theirs = first_forward_of_ours(folder, case), first_forward_of_peer(case)
        print(f"{case.name}, pair {pair + 1}: ours {ours:.2f} s, PyTorch {theirs:.2f} s", flush=True)
        results.append((ours, theirs))
    return {
        "program": case.name,
        "pairs": pairs,
        "ours s": round(statistics.median(ours for ours, _ in results), 2),
        "PyTorch s": round(statistics.median(theirs for _, theirs in results), 2),
        "ratio (least-most)": run.spread([theirs / ours for ours, theirs in results]),
        "promised": ">= 5",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    options = parser.parse_args()
    run.install_peers()
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        programs.prepare_data(folder)
        rows = [row_of(folder, case, options.pairs) for case in run.CASES if case.strategy == "ddp"]
    record = {
        "bench": "From process start to the first forward, beside PyTorch",
        "command": "bench/cpu_vs_pytorch/start.py",
        "machine": run.machine(),
        "rows": rows,
        "note": "Llama, 34 M parameters, one thread a rank; eager PyTorch. Median and range.",
    }
    RESULT.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
