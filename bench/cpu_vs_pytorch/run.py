#!/usr/bin/env python3
"""run.py [--pairs N] [--steps N] [--only TEXT] [--together]: training steps on the CPU beside PyTorch; writes bench/results/cpu_vs_pytorch.json.

A Llama of 34 million parameters, sequences of 256 tokens, one thread a rank, 1 and 2 ranks, fp32 and bf16. The programs take turns: a pair
is one run of ours, one of eager PyTorch and one of torch.compile, in an order that rotates; each gives the median of its steps after the
warm-up. A ratio is ours over the better of the two in the same pair: above 1 we are faster. CPU is what the processes used for a token.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULT = ROOT / "bench/results/cpu_vs_pytorch.json"
TRIREME = pathlib.Path(os.environ.get("TRIREME_BUILD", ROOT / "build")) / "trireme"
# TRIREME_PYTHON names a Python that has torch and what torch.compile needs; by default one is put together here.
PYTHON = pathlib.Path(os.environ.get("TRIREME_PYTHON", ROOT / ".deps/oracle/bin/python"))
PEERS = ROOT / ".deps/peers"
PEER = pathlib.Path(__file__).with_name("peer.py")
SHAPE = {"layers": 8, "width": 512, "heads": 8, "inner": 1408, "vocabulary": 16384, "sequence": 256, "batch": 4}
WARM = 2
TICK = os.sysconf("SC_CLK_TCK")


def install_peers():
    """What torch.compile imports beside torch itself, which the set-up of the tests has put together."""
    if "TRIREME_PYTHON" in os.environ:
        return
    if not PYTHON.exists():
        sys.exit("run scripts/setup.sh --tests first: it unpacks the Python side of torch")
    if not PEERS.exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--root-user-action=ignore", "--target", PEERS, "sympy==1.14.0", "networkx==3.6.1",
                        "jinja2==3.1.6", "filelock==3.20.0", "numpy==2.3.5", "setuptools==80.9.0"], check=True)


def environment(**more):
    # Nobody's threads spin while others wait for the core; bytecode may be cached, as it is for users.
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**clean, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(PEERS), **more}


def pinned(command, cores):
    return ["taskset", "-c", cores, *(str(part) for part in command)] if cores else [str(part) for part in command]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def start_peer(cores, compiled, bf16, ranks, steps):
    command = [PYTHON, PEER, *(f"--{key}={value}" for key, value in SHAPE.items()), f"--steps={steps}"]
    command += ["--bf16"] * bf16 + ["--compile"] * compiled
    port = free_port()
    processes = []
    for rank in range(ranks):
        variables = {}
        if ranks > 1:
            variables = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        processes.append(subprocess.Popen(
            pinned(command, cores), env=environment(**variables), stdout=subprocess.PIPE, text=True
        ))
    return processes


def run_peer(cores, compiled, bf16, ranks, steps):
    processes = start_peer(cores, compiled, bf16, ranks, WARM + steps)
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit("the PyTorch program failed")
    lines = [[json.loads(line) for line in output.splitlines()] for output in outputs]
    walls = [step["wall"] for step in lines[0][1 + WARM :]]
    cpu = sum(step["cpu"] for rank in lines for step in rank[1 + WARM :])
    return summary(walls, cpu, ranks)


def summary(walls, cpu, ranks):
    tokens = SHAPE["batch"] * SHAPE["sequence"] * ranks
    return {
        "tokens_per_s": tokens / statistics.median(walls),
        "cpu_us": cpu / (len(walls) * tokens) * 1e6,
    }


def prepare_data(folder):
    text = folder / "text.txt"
    text.write_text(" ".join(str(number * number) for number in range(60000)), encoding="ascii")
    subprocess.run([TRIREME, "data", "prepare", text, "--output", folder / "data"], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def write_config(folder, bf16, ranks, steps):
    config = {
        "name": "bench",
        "output_dir": str(folder / "run"),
        "model": {
            "family": "llama", "hidden_size": SHAPE["width"], "num_layers": SHAPE["layers"], "num_heads": SHAPE["heads"],
            "intermediate_size": SHAPE["inner"], "vocab_size": SHAPE["vocabulary"], "tie_word_embeddings": True,
        },
        "data": {"path": str(folder / "data"), "sequence_length": SHAPE["sequence"]},
        "training": {
            "max_steps": steps, "global_batch_size": SHAPE["batch"] * ranks, "micro_batch_size": SHAPE["batch"],
            "learning_rate": 1e-4, "lr_scheduler": "constant", "weight_decay": 0.1, "gradient_clipping": 1.0,
            "mixed_precision": "bf16" if bf16 else "no", "compute_threads": 1, "seed": 1, "eval_interval": 0,
        },
        "checkpoint": {"save_interval": 0, "resume": "never"},
    }
    path = folder / "bench.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    return path


def processes_of(session):
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # Ranks are in process groups of their own but in the session of what started them.
        if int(fields[3]) == session:
            found.append((int(stat.parent.name), (int(fields[11]) + int(fields[12])) / TICK))
    return found


def step_records(path):
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:  # being written
            break
        if "loss" in record and "event" not in record:
            records.append(record)
    return records


def start_ours(cores, folder, bf16, ranks, steps):
    (folder / "run/metrics.jsonl").unlink(missing_ok=True)
    command = [TRIREME] + (["launch", "--nproc-per-node", ranks] if ranks > 1 else [])
    command += ["train", write_config(folder, bf16, ranks, steps)]
    return subprocess.Popen(pinned(command, cores), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            start_new_session=True)


def run_ours(cores, folder, bf16, ranks, steps):
    metrics = folder / "run/metrics.jsonl"
    # One step more than is looked at, so that the save at the end stays out.
    process = start_ours(cores, folder, bf16, ranks, WARM + steps + 1)
    cpu = {}
    while process.poll() is None:
        records = step_records(metrics)
        for mark in (WARM, WARM + steps):
            if len(records) >= mark and mark not in cpu:
                cpu[mark] = sum(used for _, used in processes_of(process.pid))
        time.sleep(0.003)
    if process.returncode:
        sys.exit(f"trireme failed: {process.stderr.read().decode()}")
    walls = [record["step_seconds"] for record in step_records(metrics)[WARM : WARM + steps]]
    return summary(walls, cpu[WARM + steps] - cpu[WARM], ranks)


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def name_of(bf16, ranks):
    return f"{'bf16' if bf16 else 'fp32'}, {ranks} rank{'s' * (ranks > 1)}"


def measure(cores, data, bf16, ranks, pairs, steps):
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        (folder / "data").symlink_to(data)
        return row_of(cores, folder, bf16, ranks, pairs, steps)


def row_of(cores, folder, bf16, ranks, pairs, steps):
    programs = {
        "ours": lambda: run_ours(cores, folder, bf16, ranks, steps),
        "eager": lambda: run_peer(cores, False, bf16, ranks, steps),
        "compiled": lambda: run_peer(cores, True, bf16, ranks, steps),
    }
    results = []
    names = list(programs)
    run_peer(cores, True, bf16, ranks, 1)  # fills the compiler's cache
    for pair in range(pairs):
        order = names[pair % 3 :] + names[: pair % 3]
        results.append({name: programs[name]() for name in order})
        print(f"{name_of(bf16, ranks)}, pair {pair + 1}: " + ", ".join(
            f"{name} {results[-1][name]['tokens_per_s']:.0f} tokens/s {results[-1][name]['cpu_us']:.0f} us CPU"
            for name in names), flush=True)
    better = [max(r["eager"]["tokens_per_s"], r["compiled"]["tokens_per_s"]) for r in results]
    least = [min(r["eager"]["cpu_us"], r["compiled"]["cpu_us"]) for r in results]
    median = lambda name, key: statistics.median(r[name][key] for r in results)
    return {
        "step": name_of(bf16, ranks),
        "pairs": pairs,
        "ours tokens/s": round(median("ours", "tokens_per_s")),
        "eager": round(median("eager", "tokens_per_s")),
        "compiled": round(median("compiled", "tokens_per_s")),
        "ratio (least-most)": spread([r["ours"]["tokens_per_s"] / b for r, b in zip(results, better)]),
        "CPU us/token": round(median("ours", "cpu_us")),
        "CPU eager": round(median("eager", "cpu_us")),
        "CPU compiled": round(median("compiled", "cpu_us")),
        "CPU ratio": spread([b / r["ours"]["cpu_us"] for r, b in zip(results, least)]),
    }


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
    parser.add_argument("--together", action="store_true", help="all rows at the same time, two cores each")
    parser.add_argument("--only", default="", help="only the rows whose name has this in it; the result keeps its others")
    options = parser.parse_args()
    install_peers()
    cells = [(bf16, ranks) for bf16 in (False, True) for ranks in (1, 2) if options.only in name_of(bf16, ranks)]
    available = sorted(os.sched_getaffinity(0))
    if options.together and len(available) < 2 * len(cells):
        sys.exit(f"--together needs two cores for each of {len(cells)} rows")
    with tempfile.TemporaryDirectory() as work, concurrent.futures.ThreadPoolExecutor(
        len(cells) if options.together else 1
    ) as pool:
        prepare_data(pathlib.Path(work))
        futures = []
        for index, (bf16, ranks) in enumerate(cells):
            cores = ",".join(str(core) for core in available[2 * index : 2 * index + 2]) if options.together else ""
            futures.append(
                pool.submit(measure, cores, pathlib.Path(work) / "data", bf16, ranks, options.pairs, options.steps))
        rows = [future.result() for future in futures]
    print(json.dumps(rows, indent=2))
    if options.only and RESULT.exists():
        fresh = {row["step"]: row for row in rows}
        old = {row["step"]: row for row in json.loads(RESULT.read_text(encoding="utf-8"))["rows"]}
        rows = list({**old, **fresh}.values())
    record = {
        "bench": "A training step on the CPU beside PyTorch",
        "command": "bench/cpu_vs_pytorch/run.py" + " --together" * options.together,
        "machine": machine(rows="at the same time, on cores of their own" if options.together else "one after another"),
        "rows": rows,
        "note": "Llama, 34 M parameters, T 256, 4 sequences a rank and step, one thread a rank; bf16 beside PyTorch's autocast. The ratio is "
        "ours over the better of eager and torch.compile in the same pair, median and range; for CPU the other way round, so that above 1 "
        "is better for us in both.",
    }
    RESULT.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
