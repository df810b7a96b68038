"""The training step of bench/cpu_vs_pytorch as a PyTorch user writes it: eager or torch.compile, one process, DDP or fully_shard over Gloo.

Writes a JSON line when the first forward begins ({"forward": unix time}), one a step ({"wall": s, "cpu": s}, CPU time of this process) and
one at the end ({"peak": bytes resident at most in the steps after --warm}).
The plain parts are PyTorch's fastest ones on a CPU: scaled_dot_product_attention, nn.RMSNorm, the fused AdamW, the for-each clip.
"""

import argparse
import json
import os
import pathlib
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Block(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin):
        B, T, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(B, T, 3, self.heads, C // self.heads).transpose(1, 3).unbind(2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(B, T, C))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).type_as(x)


class Llama(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embed = nn.Embedding(a.vocabulary, a.width)
        self.blocks = nn.ModuleList(Block(a.width, a.heads, a.inner) for _ in range(a.layers))
        self.norm = nn.RMSNorm(a.width, eps=1e-5)
        self.head = nn.Linear(a.width, a.vocabulary, bias=False)
        self.head.weight = self.embed.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        D = a.width // a.heads
        angles = torch.outer(torch.arange(a.sequence).float(), 10000.0 ** (-torch.arange(0, D, 2).float() / D))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids, labels):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def arguments():
    parser = argparse.ArgumentParser()
    for name in ("layers", "width", "heads", "inner", "vocabulary", "sequence", "batch", "warm", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--shard", action="store_true")
    return parser.parse_args()


def say(**values):
    print(json.dumps(values), flush=True)


def peak_bytes():
    for line in open("/proc/self/status", encoding="ascii"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024


def shard(model, a, ranks):
    """Each block a group, the rest one, as PyTorch's own examples have it; their mixed precision, not autocast."""
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (ranks,))
    dtypes = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32} if a.bf16 else {}
    policy = MixedPrecisionPolicy(**dtypes)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def main():
    a = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    model = Llama(a)
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
        model = shard(model, a, ranks) if a.shard else nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    step_model = torch.compile(model) if a.compile else model
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=1e-4, fused=True
    )
    batches = torch.randint(0, 257, (a.warm + a.steps, a.batch, a.sequence + 1))
    say(forward=time.time())
    for step, batch in enumerate(batches):
        if step == a.warm:
            pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts anew
        wall, cpu = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=a.bf16 and not a.shard):
            loss = step_model(batch[:, :-1], batch[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        say(wall=time.perf_counter() - wall, cpu=time.process_time() - cpu, loss=value)
    say(peak=peak_bytes())
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
