#!/usr/bin/env python3
"""What DeepSpeed's own configuration class makes of some hundred configurations.

Its modules of configuration run as they are (they need torch, pydantic and hjson); all others, which would compile or need a device,
are stand-ins. Usage as oracle_goldens.py has it.
"""
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import json
import logging
import os
import random
import re
import sys
import types

import oracle_goldens

RELEASE = "0.19.6"
REAL = re.compile(r"(config|config_utils|constants|elasticity\.elasticity|elasticity\.utils)$")
EXPORTED = {"deepspeed.elasticity": "deepspeed.elasticity.elasticity",
            "deepspeed.runtime.tensor_parallel": "deepspeed.runtime.tensor_parallel.config"}
world_size = 1


class Cpu:
    def device_name(self, *_):
        return "cpu"

    def communication_backend_version(self):
        return (0,)

    def __getattr__(self, name):
        return lambda *_, **__: True


def silent_logger():
    logger = logging.getLogger("deepspeed")
    logger.setLevel(logging.CRITICAL + 1)
    return logger


class StandIn(types.ModuleType):
    known = {"get_accelerator": Cpu, "version": RELEASE, "logger": silent_logger(), "get_rank": lambda *_: 0,
             "get_world_size": lambda *_: world_size}

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.known.get(name, type(name, (), {}))


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, root):
        self.root = root

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] != "deepspeed":
            return None
        file = os.path.join(self.root, *name.split(".")) + ".py"
        if os.path.isfile(file) and REAL.search(name):
            return importlib.util.spec_from_file_location(name, file)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = StandIn(spec.name)
        module.__path__ = [os.path.join(self.root, *spec.name.split("."))]
        return module

    def exec_module(self, module):
        if module.__name__ in EXPORTED:
            real = importlib.import_module(EXPORTED[module.__name__])
            module.__dict__.update({name: value for name, value in vars(real).items() if not name.startswith("_")})


def load(root):
    sys.meta_path.insert(0, Finder(root))
    return importlib.import_module("deepspeed.runtime.config").DeepSpeedConfig


def answer(config_class, case):
    global world_size
    world_size = case["ranks"]
    try:
        made = config_class(json.loads(json.dumps(case["config"])))
    except Exception:  # pylint: disable=broad-except  # whatever it throws, it is a refusal
        return {"accepted": False}
    return {"accepted": True,
            "train": made.train_batch_size,
            "micro": made.train_micro_batch_size_per_gpu,
            "accumulation": made.gradient_accumulation_steps,
            "stage": int(made.zero_optimization_stage),
            "precision": "fp16" if made.float16_config.enabled else "bf16" if made.bfloat16_config.enabled else "no",
            "clipping": made.gradient_clipping}


def batch_case(ranks, *sizes):
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    given = {name: value for name, value in zip(names, sizes) if value is not None}
    return {"about": "batch of " + (", ".join(given) or "nothing"), "ranks": ranks, "config": given}


def batch_cases():
    every = list(itertools.product([1, 2, 3, 4, 8], [None, 1, 7, 8, 24, 32], [None, 1, 2, 4], [None, 1, 2, 3]))
    for each in random.Random(6).sample(every, 200):
        yield batch_case(*each)


def fresh_batch(generator):
    ranks, micro, accumulation = (generator.choice([1, 2, 3, 5, 8, 60]) for _ in range(3))
    train = generator.choice([ranks * micro * accumulation, ranks * micro, micro * accumulation, generator.randint(1, 500)])
    return batch_case(ranks, *(generator.choice([value, value, None]) for value in (train, micro, accumulation)))


BOOLEANS = ["overlap_comm", "contiguous_gradients", "reduce_scatter", "use_multi_rank_bucket_allreduce",
            "allgather_partitions", "round_robin_gradients", "ignore_unused_parameters", "load_from_fp32_weights",
            "elastic_checkpoint", "stage3_gather_16bit_weights_on_model_save", "memory_efficient_linear",
            "stage3_allgather_sequential", "log_trace_cache_warnings", "zero_quantized_weights",
            "stage3_use_all_reduce_for_fetch_params"]
INTEGERS = ["reduce_bucket_size", "allgather_bucket_size", "sub_group_size", "stage3_prefetch_bucket_size",
            "stage3_param_persistence_threshold", "stage3_max_live_parameters", "stage3_max_reuse_distance",
            "prefetch_bucket_size", "max_live_parameters", "zero_hpz_partition_size", "mics_shard_size"]
SCALES = {"loss_scale": [0, 128, -1, None], "initial_scale_power": [12, "x", 10**6, True], "loss_scale_window": [500, 0, True, 10**13],
          "hysteresis": [2, "x", 0, 10**9], "consecutive_hysteresis": [True, "x", 1], "min_loss_scale": [1, 0, 0.5, 10**12],
          "scale": [1, "auto"]}


def section_cases():
    for key in BOOLEANS:
        for value in (True, False, "maybe", 2, "auto", 1, None, []):
            yield f"zero {key} {json.dumps(value)}", {"zero_optimization": {"stage": 3, key: value}}
    for key in INTEGERS:
        for value in (1000, 5e8, 1.5, "x", -5, True, "auto", False, None):
            yield f"zero {key} {json.dumps(value)}", {"zero_optimization": {"stage": 3, key: value}}
    yield ('zero max_live_parameters "auto"; zero stage3_max_live_parameters 1000',
           {"zero_optimization": {"stage": 3, "max_live_parameters": "auto", "stage3_max_live_parameters": 1000}})
    for stage in (0, 1, 2, 3, 4, -1, "2", "x", None):
        yield f"stage {json.dumps(stage)}", {"zero_optimization": {"stage": stage}}
    for whole in (True, False, None, "x", []):
        yield f"zero_optimization {json.dumps(whole)}", {"zero_optimization": whole}
    for stage, kind, device in itertools.product(range(4), ("optimizer", "param"), ("none", "cpu", "nvme", "disk")):
        yield (f"offload_{kind} {device} stage {stage}",
               {"zero_optimization": {"stage": stage, f"offload_{kind}": {"device": device}}})
    yield ("offload_optimizer none stage 3; offload_param cpu stage 3",
           {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none"}, "offload_param": {"device": "cpu"}}})
    for stage, ratio in itertools.product((1, 3), (1.0, 0.5, 2)):
        yield (f"ratio {ratio} stage {stage}",
               {"zero_optimization": {"stage": stage, "offload_optimizer": {"device": "cpu", "ratio": ratio}}})
    for section in ("zero_optimization", "fp16", "bf16", "tensorboard", "csv_monitor", "comms_logger", "wandb",
                    "activation_checkpointing", "flops_profiler", "compile", "data_types", "optimizer", "aio"):
        yield f"unknown key of {section}", {section: {"no_such_key": 1}}
    yield "unknown key", {"gradient_cliping": 1.0}
    yield "comment", {"_comment": 1.0}
    for key, values in SCALES.items():
        for value in values:
            yield f"fp16 {key} {json.dumps(value)}", {"fp16": {"enabled": True, key: value}}
    for fp16, bf16 in itertools.product((None, True, False), repeat=2):
        config = {"fp16": {"enabled": fp16}} if fp16 is not None else {}
        config.update({"bfloat16": {"enabled": bf16}} if bf16 is not None else {})
        yield f"fp16 {fp16} bf16 {bf16}", config
    for name in ("fp32", "fp16", "bfp16", "bf16", "int8"):
        yield f"communication_data_type {name}", {"communication_data_type": name}
    for op, stage in itertools.product(("mean", "sum", "max"), (0, 2, 3)):
        yield (f"gradient_allreduce_op {op} stage {stage}",
               {"gradient_allreduce_op": op, "zero_optimization": {"stage": stage}})
    for value in ("WARN", "ignore", "FAIL", "x"):
        yield f"tag_validation {value}", {"checkpoint": {"tag_validation": value}}
    for clipping in (0, 1.0, 0.3):
        yield f"gradient_clipping {clipping}", {"gradient_clipping": clipping}
    yield "old offload", {"zero_optimization": {"stage": 2, "cpu_offload": True}}
    yield "grad_hooks", {"zero_optimization": {"stage": 2, "grad_hooks": True}}
    for name in ("Adam", "adamw", "SGD", "nonsense"):
        yield f"optimizer {name}", {"optimizer": {"type": name, "params": {"lr": 1e-3}}}
    yield ("offload_optimizer cpu stage 2; old offload",
           {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "cpu_offload": True}})


def cases():
    yield from batch_cases()
    for about, config in section_cases():
        yield {"about": about, "ranks": 2, "config": {"train_micro_batch_size_per_gpu": 1, **config}}


def merge(config, more):
    """Whether all of `more` could be added: where both have a key, with the same value."""
    for key, value in more.items():
        both = isinstance(value, dict) and isinstance(config.get(key), dict)
        if (not merge(config[key], value)) if both else (config.setdefault(key, value) != value):
            return False
    return True


def fresh_value(generator):
    return generator.choice([generator.randint(0, 9), generator.randint(-10**6, 10**13), round(generator.uniform(-2, 2), 3),
                             float(generator.randint(0, 10**9)), True, False, "auto", "x", None, [], {}])


def fresh_section(generator):
    if generator.random() < 0.5:
        return generator.choice(list(section_cases()))
    value = fresh_value(generator)
    section, keys = generator.choice([("zero", BOOLEANS), ("zero", INTEGERS), ("fp16", list(SCALES))])
    key = generator.choice(keys)
    given = ({"zero_optimization": {"stage": generator.randint(0, 3), key: value}} if section == "zero" else
             {"fp16": {"enabled": True, key: value}})
    return f"{section} {key} {json.dumps(value)}", given


def fresh(generator):
    """One to three sections at once, each named in `about`, or a batch."""
    if generator.random() < 0.3:
        return fresh_batch(generator)
    config, abouts = {"train_micro_batch_size_per_gpu": 1}, []
    for _ in range(generator.choice([1, 1, 2, 3])):
        about, section = fresh_section(generator)
        merged = json.loads(json.dumps(config))
        if merge(merged, section):
            config = merged
            abouts.append(about)
    return {"about": "; ".join(abouts), "ranks": generator.choice([1, 2, 4]), "config": config}


if __name__ == "__main__":
    sys.exit(oracle_goldens.run(load, answer, cases, fresh))
