"""The programs that run.py and start.py compare: a training step of ours and of PyTorch (peer.py), started, followed and summed up."""

import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench")]
import machine

TRIREME = pathlib.Path(os.environ.get("TRIREME_BUILD", ROOT / "build")) / "trireme"
# TRIREME_PYTHON names a Python that has torch and what torch.compile needs; by default one is put together here.
PYTHON = pathlib.Path(os.environ.get("TRIREME_PYTHON", ROOT / ".deps/oracle/bin/python"))
PEERS = ROOT / ".deps/peers"
PEER = pathlib.Path(__file__).with_name("peer.py")
SHAPE = {"layers": 8, "width": 512, "heads": 8, "inner": 1408, "vocabulary": 16384, "sequence": 256, "batch": 4}
# What a program takes without a model to speak of: the libraries, the connections, the data.
NOTHING = {**SHAPE, "layers": 1, "width": 64, "heads": 1, "inner": 64, "vocabulary": 512, "sequence": 16, "batch": 1}
WARM = 2
TICK = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class Case:
    """What both sides run. strategy: ours, "ddp" or "full_shard"; theirs DistributedDataParallel or fully_shard."""

    bf16: bool
    ranks: int
    strategy: str = "ddp"

    @property
    def name(self):
        return f"{'bf16' if self.bf16 else 'fp32'}, {self.ranks} rank{'s' * (self.ranks > 1)}" + f", {self.strategy}" * (self.ranks > 1)


def environment(**more):
    # Nobody's threads spin while others wait for the core; bytecode may be cached, as it is for users.
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**clean, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(PEERS), **more}


def pinned(command, cores):
    return ["taskset", "-c", cores, *(str(part) for part in command)] if cores else [str(part) for part in command]


def start_peer(cores, compiled, case, steps, shape=SHAPE):
    command = [PYTHON, PEER, *(f"--{key}={value}" for key, value in shape.items()), f"--warm={WARM}", f"--steps={steps}"]
    command += ["--bf16"] * case.bf16 + ["--compile"] * compiled + ["--shard"] * (case.strategy == "full_shard")
    port = str(machine.free_port())
    processes = []
    for rank in range(case.ranks):
        variables = {}
        if case.ranks > 1:
            variables = {"RANK": str(rank), "WORLD_SIZE": str(case.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        processes.append(subprocess.Popen(
            pinned(command, cores), env=environment(**variables), stdout=subprocess.PIPE, text=True
        ))
    return processes


def run_peer(cores, compiled, case, steps, shape=SHAPE):
    processes = start_peer(cores, compiled, case, steps, shape)
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError("the PyTorch program failed")
    ranks = [[json.loads(line) for line in output.splitlines()] for output in outputs]
    steps_of = lambda lines: [line for line in lines if "wall" in line][WARM:]
    cpu = sum(step["cpu"] for lines in ranks for step in steps_of(lines))
    return summary([step["wall"] for step in steps_of(ranks[0])], cpu, max(lines[-1]["peak"] for lines in ranks), case)


def summary(walls, cpu, peak, case):
    tokens = SHAPE["batch"] * SHAPE["sequence"] * case.ranks
    return {
        "tokens_per_s": tokens / statistics.median(walls),
        "cpu_us": cpu / (len(walls) * tokens) * 1e6,
        "peak": peak,
    }


def prepare_data(folder):
    text = folder / "text.txt"
    text.write_text(" ".join(str(number * number) for number in range(60000)), encoding="ascii")
    subprocess.run([TRIREME, "data", "prepare", text, "--output", folder / "data"], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def write_config(folder, case, steps, shape):
    config = {
        "name": "bench",
        "output_dir": str(folder / "run"),
        "model": {
            "family": "llama", "hidden_size": shape["width"], "num_layers": shape["layers"], "num_heads": shape["heads"],
            "intermediate_size": shape["inner"], "vocab_size": shape["vocabulary"], "tie_word_embeddings": True,
        },
        "data": {"path": str(folder / "data"), "sequence_length": shape["sequence"]},
        "training": {
            "max_steps": steps, "global_batch_size": shape["batch"] * case.ranks, "micro_batch_size": shape["batch"],
            "learning_rate": 1e-4, "lr_scheduler": "constant", "weight_decay": 0.1, "gradient_clipping": 1.0,
            "mixed_precision": "bf16" if case.bf16 else "no", "compute_threads": 1, "seed": 1, "eval_interval": 0,
        },
        "distributed": {"strategy": case.strategy},
        "checkpoint": {"save_interval": 0, "resume": "never"},
        "monitor": {"wall_clock_breakdown": True},
    }
    path = folder / "bench.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    return path


def processes_of(session):
    """(process, CPU seconds) of all in a session: ranks are in process groups of their own but in what started them's."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            found.append((int(stat.parent.name), (int(fields[11]) + int(fields[12])) / TICK))
    return found


def peak_of(session):
    peaks = [0]
    for pid, _ in processes_of(session):
        try:
            status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        except OSError:
            continue
        peaks += [int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")]
    return max(peaks)


def forget_peaks(session):
    for pid, _ in processes_of(session):
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts anew


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


def start_ours(cores, folder, case, steps, shape=SHAPE):
    (folder / "run/metrics.jsonl").unlink(missing_ok=True)
    command = [TRIREME] + (["launch", "--nproc-per-node", case.ranks] if case.ranks > 1 else [])
    command += ["train", write_config(folder, case, steps, shape)]
    return subprocess.Popen(pinned(command, cores), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            start_new_session=True)


def run_ours(cores, folder, case, steps, shape=SHAPE):
    metrics = folder / "run/metrics.jsonl"
    # One step more than is looked at, so that the save at the end stays out.
    process = start_ours(cores, folder, case, WARM + steps + 1, shape)
    cpu, peak = {}, 0
    while process.poll() is None:
        records = step_records(metrics)
        for mark in (WARM, WARM + steps):
            if len(records) < mark or mark in cpu:
                continue
            cpu[mark] = sum(used for _, used in processes_of(process.pid))
            if mark == WARM:
                forget_peaks(process.pid)
            else:
                peak = peak_of(process.pid)
        time.sleep(0.01)
    if process.returncode or len(cpu) < 2:
        raise RuntimeError(f"trireme failed: {process.stderr.read().decode()}")
    records = step_records(metrics)[WARM : WARM + steps]
    outside = [0.1 * record["breakdown_ms"]["outside"] / record["step_seconds"] for record in records]
    walls = [record["step_seconds"] for record in records]
    return {**summary(walls, cpu[WARM + steps] - cpu[WARM], peak, case), "outside_percent": statistics.median(outside)}
