"""What torch.optim makes of given gradients, in double.

    torch_optimizers.py CASES INPUT OUTPUT

CASES: JSON, {"n", "rates", "scales", "cases": [{"class", "arguments"}]}. INPUT: n initial weights, then n gradients a step, all fp32.
OUTPUT: of each case the n weights after the last step, in double. The gradients are scaled, and the learning rate set, before each step.
Lion, which torch has not got, is algorithm 2 of Chen et al. 2023. Exits 77 without torch."""

import json
import pathlib
import sys

try:
    import torch
except ImportError:
    sys.exit(77)


class Lion:
    def __init__(self, parameters, lr, betas, weight_decay):
        (self.weight,) = parameters
        self.betas, self.decay = betas, weight_decay
        self.param_groups = [{"lr": lr}]
        self.momentum = torch.zeros_like(self.weight)

    @torch.no_grad()
    def step(self):
        rate, gradient = self.param_groups[0]["lr"], self.weight.grad
        direction = torch.sign(self.betas[0] * self.momentum + (1 - self.betas[0]) * gradient)
        self.weight -= rate * (direction + self.decay * self.weight)
        self.momentum = self.betas[1] * self.momentum + (1 - self.betas[1]) * gradient


plan = json.loads(sys.argv[1])
rows = torch.frombuffer(bytearray(pathlib.Path(sys.argv[2]).read_bytes()), dtype=torch.float32).reshape(-1, plan["n"]).double()
with open(sys.argv[3], "wb") as out:
    for case in plan["cases"]:
        weight = rows[0].clone().requires_grad_()
        make = Lion if case["class"] == "Lion" else getattr(torch.optim, case["class"])
        optimizer = make([weight], lr=1.0, **case["arguments"])
        for gradient, rate, scale in zip(rows[1:], plan["rates"], plan["scales"], strict=True):
            optimizer.param_groups[0]["lr"] = rate
            weight.grad = gradient * scale
            optimizer.step()
        out.write(weight.detach().numpy().tobytes())
