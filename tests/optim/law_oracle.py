"""Learning rates of 200 and more steps, of other programs' making.

    law_oracle.py CASES

CASES: JSON list of {"law", "steps", ...}. The laws of torch are asked of torch itself. Those of DeepSpeed are written here as its
documentation describes them, with the counter that its engine advances after each step: an object whose rate is read, then moved on.
Prints a JSON list of lists. Exits 77 without torch."""

import json
import math
import sys

try:
    import torch
except ImportError:
    sys.exit(77)


class Counter:
    """The iteration that the schedule believes to be in: -1 until the first step has ended."""

    def __init__(self, **facts):
        self.__dict__.update(facts)
        self.iteration = -1

    def ramp(self):
        length = max(2, self.warmup_steps)
        if self.type == "linear":
            return self.iteration / length
        return math.log1p(self.iteration) / math.log(length)


class Warmup(Counter):
    def after(self):
        return 1.0

    def rate(self):
        if self.iteration < 0:
            return self.minimum
        share = self.ramp() if self.iteration < max(2, self.warmup_steps) else self.after()
        return share * self.peak + (1 - share) * self.minimum


class WarmupDecay(Warmup):
    def after(self):
        length = max(2, self.warmup_steps)
        return max((self.total - self.iteration) / max(self.total - length, 1), 0)


class WarmupCosine(Counter):
    def rate(self):
        length = max(2, self.warmup_steps)
        if self.iteration < 0:
            return 0.0
        if self.iteration < length:
            share = self.ramp()
            return self.peak * (share + (1 - share) * self.minimum_ratio)
        angle = math.pi * (self.iteration - length + 1) / (self.total - length)
        return self.peak * max(0, (1 + math.cos(angle)) / 2 * (1 - self.cosine_ratio) + self.cosine_ratio)


class OneCycle(Counter):
    def rate(self):
        whole = self.first + self.second
        if self.iteration < whole:
            place = math.fmod((self.iteration + 1) / whole, 1.0)
            turn = self.first / whole
            height = place / turn if place <= turn else (1 - place) / (1 - turn)
            return self.minimum + height * (self.peak - self.minimum)
        if self.decay_steps == 0:
            return self.minimum
        return self.minimum / (1 + self.decay_rate * (self.iteration - whole + 1) / self.decay_steps)


class RangeTest(Counter):
    def rate(self):
        intervals = (self.iteration + 1) / self.step_size
        return self.minimum + self.minimum * self.rate_of_rise * (math.floor(intervals) if self.staircase else intervals)


def of_torch(law, steps, peak, minimum, warmup_steps, total):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak)
    schedulers = torch.optim.lr_scheduler
    rise = schedulers.LinearLR(optimizer, 1 / warmup_steps, 1.0, warmup_steps - 1)
    if law == "constant":
        then = schedulers.ConstantLR(optimizer, 1.0, 1)
    elif law == "linear":
        then = schedulers.LinearLR(optimizer, 1.0, minimum / peak, total - warmup_steps)
    else:
        then = schedulers.CosineAnnealingLR(optimizer, total - warmup_steps, minimum)
    scheduler = schedulers.SequentialLR(optimizer, [rise, then], [warmup_steps - 1])
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def of_counter(kind, steps, **facts):
    schedule = kind(**facts)
    rates = []
    for _ in range(steps):
        rates.append(schedule.rate())
        schedule.iteration += 1
    return rates


KINDS = {"warmup": Warmup, "warmup_decay": WarmupDecay, "warmup_cosine": WarmupCosine, "one_cycle": OneCycle, "lr_range_test": RangeTest}
answers = []
for case in json.loads(sys.argv[1]):
    law = case.pop("law")
    answers.append(of_counter(KINDS[law], **case) if law in KINDS else of_torch(law, **case))
print(json.dumps(answers))
