#!/usr/bin/env python3
"""What transformers' Trainer makes of "auto" in files of DeepSpeed, and which of its arguments it refuses beside them.

HfTrainerDeepSpeedConfig runs as it is. Usage as oracle_goldens.py has it.
"""
import copy
import importlib
import random
import sys
import types

import oracle_goldens

STATES = ("auto", "missing", "equal", "differs")
SCHEDULERS = {"WarmupLR": ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps"),
              "WarmupDecayLR": ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "total_num_steps"),
              "WarmupCosineLR": ("warmup_num_steps", "total_num_steps")}


def load(source):
    sys.path.append(source)  # there it looks whether DeepSpeed is installed; it imports nothing of it
    return importlib.import_module("transformers.integrations.deepspeed").HfTrainerDeepSpeedConfig


def answer(config_class, case):
    given = case["arguments"]
    arguments = types.SimpleNamespace(
        **given, world_size=case["ranks"], fp16=given["precision"] == "fp16", bf16=given["precision"] == "bf16",
        fp16_full_eval=False, bf16_full_eval=False, save_on_each_node=False,
        get_warmup_steps=lambda _: given["warmup_steps"])
    model = types.SimpleNamespace(config=types.SimpleNamespace(hidden_size=case["hidden_size"]))
    made = config_class(copy.deepcopy(case["config"]))
    made.trainer_config_process(arguments)
    try:
        made.trainer_config_finalize(arguments, model, given["max_steps"])
    except ValueError:
        return {"mismatches": [line.split("=")[0].removeprefix("- ds ") for line in made.mismatches]}
    names = equal_values(given, case["ranks"], case["hidden_size"])
    return {"filled": {name: made.get_value(name) for name in names if made.get_value(name) is not None}}


def arguments_of(generator):
    return {"per_device_train_batch_size": generator.randint(1, 4),
            "gradient_accumulation_steps": generator.randint(1, 4),
            "max_grad_norm": generator.choice([0.25, 0.5, 1.0, 2.0]),
            "learning_rate": generator.choice([1e-5, 3e-4, 0.002, 5e-05]),
            "adam_beta1": generator.choice([0.9, 0.8]),
            "adam_beta2": generator.choice([0.999, 0.95]),
            "adam_epsilon": generator.choice([1e-8, 1e-6]),
            "weight_decay": generator.choice([0.0, 0.1, 0.01]),
            "precision": generator.choice(["no", "fp16", "bf16"]),
            "warmup_steps": generator.choice([0, 1, 7, 20]),
            "max_steps": generator.choice([50, 100])}


def equal_values(given, ranks, hidden_size):
    """What each key has to be to agree with the arguments."""
    steps = given["gradient_accumulation_steps"]
    rate = given["learning_rate"]
    return {"train_micro_batch_size_per_gpu": given["per_device_train_batch_size"],
            "gradient_accumulation_steps": steps,
            "train_batch_size": given["per_device_train_batch_size"] * steps * ranks,
            "gradient_clipping": given["max_grad_norm"],
            "optimizer.params.lr": rate,
            "optimizer.params.betas": [given["adam_beta1"], given["adam_beta2"]],
            "optimizer.params.eps": given["adam_epsilon"],
            "optimizer.params.weight_decay": given["weight_decay"],
            "scheduler.params.warmup_min_lr": 0,
            "scheduler.params.warmup_max_lr": rate,
            "scheduler.params.warmup_num_steps": max(1, given["warmup_steps"]),
            "scheduler.params.total_num_steps": given["max_steps"],
            "fp16.enabled": given["precision"] == "fp16",
            "bf16.enabled": given["precision"] == "bf16",
            "zero_optimization.reduce_bucket_size": hidden_size**2,
            "zero_optimization.stage3_prefetch_bucket_size": 9 * hidden_size**2 // 10,
            "zero_optimization.stage3_param_persistence_threshold": 10 * hidden_size}


def differing(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [value[0] / 2, value[1]]
    return value + 1 if isinstance(value, int) else value / 2 + 0.001


def put(config, name, value):
    *sections, leaf = name.split(".")
    for section in sections:
        config = config.setdefault(section, {})
    config[leaf] = value


def case_of(generator, states, scheduler, stage):
    """states: of keys that are not "auto"."""
    given, ranks, hidden_size = arguments_of(generator), generator.randint(1, 4), generator.choice([8, 64, 72, 1000])
    config = {"optimizer": {"type": "AdamW", "params": {}}, "scheduler": {"type": scheduler, "params": {}},
              "zero_optimization": {"stage": stage}}
    for name, value in equal_values(given, ranks, hidden_size).items():
        state = states.get(name, "auto")
        is_of_another = name.startswith("scheduler.") and name.split(".")[-1] not in SCHEDULERS[scheduler]
        if state != "missing" and not is_of_another:
            put(config, name, {"auto": "auto", "equal": value, "differs": differing(value)}[state])
    about = [f"{name} {state}" for name, state in states.items() if state != "auto"]
    state = states.get("scheduler.params.warmup_num_steps", "auto")
    if given["warmup_steps"] == 0 and state in ("auto", "equal"):
        about.append(f"no warm-up, {state}")
    return {"about": "; ".join(about) or "all auto", "ranks": ranks, "hidden_size": hidden_size, "config": config,
            "arguments": given}


def fresh(generator):
    names = list(equal_values(arguments_of(generator), 1, 8))
    chosen = generator.sample(names, generator.choice([0, 1, 2, 4, 8]))
    # Mostly files that agree: one refusal hides what becomes of the other keys.
    states = {name: generator.choices(STATES, (2, 3, 4, 1))[0] for name in chosen}
    return case_of(generator, states, generator.choice(list(SCHEDULERS)), generator.randint(0, 3))


def cases():
    generator = random.Random(24)
    for name in equal_values(arguments_of(generator), 1, 8):
        for state in STATES:
            stage = generator.choice([0, 2, 3])
            yield case_of(generator, {name: state}, "WarmupDecayLR" if "scheduler" in name else "WarmupLR", stage)
    peak = {"optimizer.params.lr": "differs", "scheduler.params.warmup_max_lr": "equal"}
    yield case_of(generator, peak, "WarmupLR", 2)
    for _ in range(111):
        yield fresh(generator)


if __name__ == "__main__":
    sys.exit(oracle_goldens.run(load, answer, cases, fresh))
