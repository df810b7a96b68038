#!/usr/bin/env python3
"""deepspeed_peer.py --model NAME --seq T [...]: trains a known model with DeepSpeed's ZeRO and prints a row as `trireme bench train` does.

Under torchrun, or one process. Gradients are reduced in bf16, which is DeepSpeed's default; masters and moments are fp32, the norm is
clipped to 1. --offload: masters and moments are in host memory, where PyTorch's AdamW or DeepSpeed's updates them.
"""

import torch

import job as jobs
import models
from shapes import SHAPES


def main():
    a = jobs.arguments(__doc__, zero=("2", "1", "3"), compile=("block", "engine", "none"), offload=("none", "torch", "cpu_adam"))
    import deepspeed  # late: --help does without

    job = jobs.Job()
    deepspeed.init_distributed(job.backend)
    with job.device:
        model = models.Model(SHAPES[a.model], a.seq)
    if a.compile == "block":
        for block in model.blocks:
            block.compile()  # in place: ZeRO-3 sets attributes of every module, which torch.compile()'s wrappers do not keep
    zero = {"stage": int(a.zero), "overlap_comm": True, "contiguous_gradients": True}
    if a.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": job.has_gpu}
    config = {
        "train_micro_batch_size_per_gpu": a.micro_batch,
        "gradient_accumulation_steps": a.accumulate,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**9,
    }
    if a.offload == "cpu_adam":  # is compiled where it is used first
        optimizer = deepspeed.ops.adam.DeepSpeedCPUAdam(model.parameters(), lr=1e-4, weight_decay=0.1)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=job.has_gpu)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    if a.compile == "engine":
        engine.compile()
    loss_of = models.loss_of if a.compile == "none" else torch.compile(models.loss_of)
    tokens = torch.randint(SHAPES[a.model].vocabulary, (a.accumulate, a.micro_batch, a.seq + 1), device=job.device)

    def step():
        for batch in tokens:
            loss = loss_of(engine(batch[:, :-1]), batch[:, 1:])
            engine.backward(loss)
            engine.step()
        return loss

    seconds = job.time_steps(a, step)
    system = f"deepspeed {deepspeed.__version__.strip()} zero{a.zero}" + f", optimizer on the CPU ({a.offload})" * (a.offload != "none")
    job.print_row(a, seconds, system=system, strategy=f"zero{a.zero}", compile=a.compile, offload=a.offload, recompute="none",
                  param_dtype="bf16", master_dtype="fp32", reduce_dtype="bf16", moment_dtype="fp32")
    job.leave()


if __name__ == "__main__":
    main()
