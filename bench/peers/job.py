"""What the peers share: one process of a job, its steps, and the row that it prints."""

import argparse
import json
import os
import socket
import sys
import time

import torch

from shapes import SHAPES

PEAK_FLOPS_PER_S = 989.4e12  # of an H100 or H200, dense bf16: NVIDIA's data sheet


def seconds_since_start():
    """Since the kernel started this process, to 0.01 s."""
    with open("/proc/self/stat", encoding="ascii") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def arguments(description, **modes):
    """The arguments of all peers; modes: choices of options of one peer, the first the default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, required=True)
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches of a rank in a step")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--output", help="file to write the row to")
    for name, choices in modes.items():
        parser.add_argument("--" + name.replace("_", "-"), choices=choices, default=choices[0])
    return parser.parse_args()


class Job:
    """This process among the ranks of torchrun, or alone; on its GPU, or on the CPU where there is none."""

    def __init__(self):
        if "RANK" not in os.environ:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = str(probe.getsockname()[1])
            os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.has_gpu = torch.cuda.is_available()
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if self.has_gpu else torch.device("cpu")
        self.backend = "nccl" if self.has_gpu else "gloo"
        if self.has_gpu:
            torch.cuda.set_device(self.device)
        torch.manual_seed(0)

    def time_steps(self, a, step):
        """Calls step(), which returns the loss, until all are done. Nobody waits for a step's end but who must."""
        marks, losses = [self.mark()], []
        for number in range(a.warm_up + a.steps):
            losses.append(step().detach())
            marks.append(self.mark())
            if number == 0:
                self.wait()
                self.first_step_s = seconds_since_start()
        self.wait()
        self.losses = [losses[0].item(), losses[-1].item()]
        seconds = [self.seconds_between(*pair) for pair in zip(marks, marks[1:])]
        return seconds[a.warm_up :]

    def mark(self):
        if not self.has_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds_between(self, first, second):
        return first.elapsed_time(second) * 1e-3 if self.has_gpu else second - first

    def wait(self):
        if self.has_gpu:
            torch.cuda.synchronize()

    def peak_bytes(self):
        if not self.has_gpu:
            return 0
        free, total = torch.cuda.mem_get_info()
        return total - free  # with what the libraries hold; PyTorch's cache keeps its peak

    def print_row(self, a, seconds, **more):
        """Of rank 0: with the keys of `trireme bench train`."""
        if self.rank != 0:
            return
        shape = SHAPES[a.model]
        tokens, ordered = a.seq * a.micro_batch * a.accumulate, sorted(seconds)
        speed = lambda share: tokens / ordered[round(share * (len(ordered) - 1))]
        flops = shape.flops_per_token(a.seq)
        card = torch.cuda.get_device_name() if self.has_gpu else "CPU"
        row = {
            **more,
            "model": a.model,
            "gpus": self.ranks if self.has_gpu else 0,
            "ranks": self.ranks,
            "card": card,
            "sequence": a.seq,
            "micro_batch": a.micro_batch,
            "accumulate": a.accumulate,
            "tokens_per_step": tokens * self.ranks,
            "optimizer": "adamw",
            "clip": 1.0,
            "steps": len(seconds),
            "warm_up": a.warm_up,
            "tokens_per_s_per_gpu": speed(0.5),
            "tokens_per_s_per_gpu_spread": [speed(0.9), speed(0.1)],
            "peak_memory_bytes": self.peak_bytes(),
            "first_step_s": self.first_step_s,
            "first_loss": self.losses[0],
            "last_loss": self.losses[1],
            "flops_per_token": flops,
        }
        if "H100" in card or "H200" in card:
            row |= {"peak_flops_per_s": PEAK_FLOPS_PER_S, "mfu": speed(0.5) * flops / PEAK_FLOPS_PER_S}
        if a.output:
            with open(a.output, "w", encoding="utf-8") as file:
                file.write(json.dumps(row, indent=2) + "\n")
        print(json.dumps(row), flush=True)

    def leave(self):
        """Ends this process once all ranks are through. At once: PyTorch's threads, when they are taken down, at times abort it."""
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        sys.stdout.flush()
        os._exit(0)
