#!/usr/bin/env python3
"""run.py [--pairs N] [--steps N] [--seconds S] [--only TEXT] [--together]: training steps on the CPU beside PyTorch; writes bench/results/cpu_vs_pytorch.json.

A Llama of 34 million parameters, sequences of 256 tokens, one thread a rank, fp32 and bf16: one rank, and two with ddp beside
DistributedDataParallel and with full_shard beside fully_shard (FSDP2). The programs take turns: a pair is one run of ours, one of eager
PyTorch and one of torch.compile, in an order that rotates; each gives the median of its steps after the warm-up. A ratio is theirs over
ours in the same pair: above 1 we need less. CPU is what the processes used for a token.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from programs import NOTHING, PEERS, PYTHON, ROOT, Case, prepare_data, run_ours, run_peer

RESULT = ROOT / "bench/results/cpu_vs_pytorch.json"
CASES = [Case(bf16, ranks, strategy) for bf16 in (False, True) for ranks, strategy in ((1, "ddp"), (2, "ddp"), (2, "full_shard"))]


def install_peers():
    """What torch.compile imports beside torch itself, which the set-up of the tests has put together."""
    if "TRIREME_PYTHON" in os.environ:
        return
    if not PYTHON.exists():
        sys.exit("run scripts/setup.sh --tests first: it unpacks the Python side of torch")
    if not PEERS.exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--root-user-action=ignore", "--target", PEERS, "sympy==1.14.0", "networkx==3.6.1",
                        "jinja2==3.1.6", "filelock==3.20.0", "numpy==2.3.5", "setuptools==80.9.0"], check=True)


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def measure(cores, data, case, pairs, steps, end):
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        (folder / "data").symlink_to(data)
        return row_of(cores, folder, case, pairs, steps, end)


def row_of(cores, folder, case, pairs, steps, end):
    names = ("ours", "eager", "compiled")
    runs = {
        "ours": lambda: run_ours(cores, folder, case, steps),
        "eager": lambda: run_peer(cores, False, case, steps),
        "compiled": lambda: run_peer(cores, True, case, steps),
    }
    idle = {
        "ours": run_ours(cores, folder, case, 3000, NOTHING)["peak"],
        "eager": run_peer(cores, False, case, 2, NOTHING)["peak"],
    }
    run_peer(cores, True, case, 1)  # fills the compiler's cache
    results = []
    for pair in range(pairs):
        if results and time.monotonic() > end:
            break
        order = names[pair % 3 :] + names[: pair % 3]
        results.append({name: runs[name]() for name in order})
        print(f"{case.name}, pair {pair + 1}: " + ", ".join(
            f"{name} {results[-1][name]['tokens_per_s']:.0f} tokens/s {results[-1][name]['cpu_us']:.0f} us CPU "
            f"{results[-1][name]['peak'] >> 20} MiB" for name in names), flush=True)
    median = lambda name, key: statistics.median(result[name][key] for result in results)
    cpu_ratio = lambda name: spread([result[name]["cpu_us"] / result["ours"]["cpu_us"] for result in results])
    memory = {name: median(name, "peak") - idle[name] for name in idle}
    return {
        "step": case.name,
        "pairs": len(results),
        "ours tokens/s": round(median("ours", "tokens_per_s")),
        "eager": round(median("eager", "tokens_per_s")),
        "compiled": round(median("compiled", "tokens_per_s")),
        "CPU us/token": round(median("ours", "cpu_us")),
        "CPU eager": round(median("eager", "cpu_us")),
        "CPU compiled": round(median("compiled", "cpu_us")),
        "CPU eager / ours": cpu_ratio("eager"),
        "CPU compiled / ours": cpu_ratio("compiled"),
        "outside %": round(median("ours", "outside_percent"), 2),
        "MiB": round(memory["ours"] / 2**20),
        "MiB eager": round(memory["eager"] / 2**20),
        "MiB ours / eager": round(memory["ours"] / memory["eager"], 2),
        "promised": promise(case),
    }


def promise(case):
    if case.ranks == 1:
        return ""
    speed = "compiled >= 1.3" if case.bf16 else "eager >= 1.1"
    return f"{speed}, outside <= 1 %" + ", MiB <= 0.8" * (case.strategy == "full_shard")


def machine(**more):
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "processor": re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())[1],
        "cores": len(os.sched_getaffinity(0)),
        "PyTorch": "2.11.0",
        **more,
        "commit": git.stdout.strip() or "not known",
        "date": datetime.date.today().isoformat(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1e9, help="no pair begins later than this after the start")
    parser.add_argument("--together", action="store_true", help="all rows at the same time, on cores of their own")
    parser.add_argument("--only", default="", help="only the rows whose name has this in it; the result keeps its others")
    options = parser.parse_args()
    install_peers()
    end = time.monotonic() + options.seconds
    cases = [case for case in CASES if options.only in case.name]
    available = sorted(os.sched_getaffinity(0))
    # One more than ranks, for what communicates.
    needed = [case.ranks + 1 for case in cases]
    if options.together and len(available) < sum(needed):
        sys.exit(f"--together needs {sum(needed)} cores")
    with tempfile.TemporaryDirectory() as work, concurrent.futures.ThreadPoolExecutor(
        len(cases) if options.together else 1
    ) as pool:
        prepare_data(pathlib.Path(work))
        futures = []
        for index, case in enumerate(cases):
            first = sum(needed[:index])
            cores = ",".join(str(core) for core in available[first : first + needed[index]]) if options.together else ""
            futures.append(
                pool.submit(measure, cores, pathlib.Path(work) / "data", case, options.pairs, options.steps, end))
        concurrent.futures.wait(futures)
        rows = [future.result() for future in futures if not future.exception()]
    failures = [str(future.exception()) for future in futures if future.exception()]
    print(json.dumps(rows, indent=2))
    if options.only and RESULT.exists():
        fresh = {row["step"]: row for row in rows}
        old = {row["step"]: row for row in json.loads(RESULT.read_text(encoding="utf-8"))["rows"]}
        rows = list({**old, **fresh}.values())
    record = {
        "bench": "A training step on the CPU beside PyTorch",
        "command": "bench/cpu_vs_pytorch/run.py" + " --together" * options.together,
        "machine": machine(rows="at the same time, on a core a rank and one more" if options.together else "one after another"),
        "rows": rows,
        "note": "Llama, 34 M parameters, T 256, 4 sequences a rank and step, one thread a rank. bf16: beside autocast, for full_shard beside "
        "FSDP2's MixedPrecisionPolicy (gathered in bf16, reduced in fp32). Ratios are of CPU time a token, theirs over ours in the same pair, "
        "median and range: above 1 we need less. outside: the share of ours in which the compute lane is in no instruction and waits for no "
        "collective, loader and all. MiB: what a rank has resident at most (VmHWM, after the warm-up), above what the same program has with a "
        "model of next to nothing (one layer, 64 channels): libraries, connections, data.",
    }
    RESULT.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
