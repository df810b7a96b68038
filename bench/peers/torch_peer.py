#!/usr/bin/env python3
"""torch_peer.py --model NAME --seq T [...]: trains a known model with plain PyTorch and prints a row as `trireme bench train` does.

One process, or several under torchrun. --mode ddp: DistributedDataParallel (on one rank the model itself) with autocast; fsdp2:
fully_shard a block with its mixed precision. Weights, moments and sums are fp32, with --states bf16 bf16, which torch rounds to
nearest; the computation is bf16, the norm is clipped to 1.
"""

import contextlib

import torch
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

import job as jobs
import models
from shapes import SHAPES


class Recomputed(nn.Module):
    """A block that keeps its input only."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, *inputs):
        return checkpoint(self.block, *inputs, use_reentrant=False, preserve_rng_state=False)


def sharded(model, job, a):
    mesh = torch.distributed.device_mesh.init_device_mesh(job.device.type, (job.ranks,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32 if a.states == "fp32" else torch.bfloat16)
    reshard = a.reshard == "yes"
    for block in model.blocks:
        # The last block's parameters are needed again at once.
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard and block is not model.blocks[-1])
    return fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)


def compiled(module, how):
    return torch.compile(module, mode="max-autotune-no-cudagraphs" if how.endswith("-autotune") else None)


def prepared(model, job, a):
    """The model that a step calls."""
    for i, block in enumerate(model.blocks):
        if a.recompute == "full":
            block = Recomputed(block)
        model.blocks[i] = compiled(block, a.compile) if a.compile.startswith("block") else block
    called = sharded(model, job, a) if a.mode == "fsdp2" else model
    if a.compile.startswith("model"):
        called = compiled(called, a.compile)
    if a.mode == "fsdp2":
        return called
    if job.ranks == 1:
        return called
    ids = [job.device.index] if job.has_gpu else None
    return nn.parallel.DistributedDataParallel(called, device_ids=ids, gradient_as_bucket_view=True)


def main():
    a = jobs.arguments(__doc__, mode=("ddp", "fsdp2"), compile=("block", "model", "block-autotune", "model-autotune", "none"), reshard=("yes", "no"),
                       recompute=("none", "full"), precision=("bf16",), states=("fp32", "bf16"))
    job = jobs.Job()
    if job.ranks > 1 or a.mode == "fsdp2":
        torch.distributed.init_process_group(job.backend, device_id=job.device if job.has_gpu else None)
    with job.device:
        model = models.Model(SHAPES[a.model], a.seq)
    if a.states == "bf16":
        model.to(torch.bfloat16)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    called = prepared(model, job, a)
    if a.mode == "fsdp2":  # other tensors than before
        decayed = [p for p in model.parameters() if p.dim() > 1]
        plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=1e-4, fused=True
    )
    loss_of = models.loss_of if a.compile == "none" else torch.compile(models.loss_of)
    tokens = torch.randint(SHAPES[a.model].vocabulary, (a.accumulate, a.micro_batch, a.seq + 1), device=job.device)

    def backward(batch, is_last):
        syncs_alone = job.ranks > 1 and a.mode == "ddp" and not is_last
        if a.mode == "fsdp2":
            model.set_requires_gradient_sync(is_last)
        with called.no_sync() if syncs_alone else contextlib.nullcontext():
            with torch.autocast(job.device.type, torch.bfloat16, enabled=a.mode == "ddp" and a.states == "fp32"):
                logits = called(batch[:, :-1])
            loss = loss_of(logits, batch[:, 1:])
            (loss / a.accumulate).backward()
        return loss

    def step():
        for i, batch in enumerate(tokens):
            loss = backward(batch, i + 1 == a.accumulate)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    seconds = job.time_steps(a, step)
    words = ["torch", torch.__version__.partition("+")[0], a.mode, "compiled" if a.compile != "none" else "eager"]
    job.print_row(a, seconds, system=" ".join(words), strategy=a.mode, compile=a.compile, reshard=a.reshard, recompute=a.recompute,
                  param_dtype="bf16", master_dtype=a.states, reduce_dtype=a.states, grad_accum_dtype=a.states,
                  moment_dtype=a.states)
    job.leave()


if __name__ == "__main__":
    main()
