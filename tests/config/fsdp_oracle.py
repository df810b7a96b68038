#!/usr/bin/env python3
"""What transformers 5.24 makes of --fsdp and --fsdp_config: see oracle.py.

Its TrainingArguments turn both into arguments of accelerate's plugin, which is made as its Trainer makes it.
"""
import itertools
import os
import sys
import types
import unittest.mock

import accelerate_oracle
import oracle


class Transformers:
    def __init__(self):
        self.accelerate = accelerate_oracle.Accelerate()
        from transformers import TrainingArguments
        self.arguments = TrainingArguments

    def outcome(self, case):
        given = oracle.json.loads(oracle.json.dumps(case["config"]))
        arguments = types.SimpleNamespace(fsdp=given.get("fsdp"), fsdp_config=given.get("fsdp_config"),
                                          activation_checkpointing=False, gradient_checkpointing=False,
                                          _apply_legacy_fsdp_to_config=self.arguments._apply_legacy_fsdp_to_config)
        with unittest.mock.patch.dict(os.environ):
            try:
                plugin = self.arguments._process_fsdp_args(arguments)
                return {"accepted": True, "values": self.values(plugin)}
            except Exception:  # pylint: disable=broad-except  # whatever it throws, it is a refusal
                return {"accepted": False}

    def values(self, plugin):
        if plugin is None:
            return {"strategy": "ddp"}
        return accelerate_oracle.fsdp_values(self.accelerate.dataclasses.FullyShardedDataParallelPlugin(**plugin))


WORDS = ["full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2", "full_shard auto_wrap",
         "shard_grad_op auto_wrap", "full_shard offload", "full_shard auto_wrap offload", "hybrid_shard auto_wrap",
         "offload", "auto_wrap", "full_shard shard_grad_op", "FULL_SHARD", "full-shard", "sharded", "", True, False, None,
         ["full_shard", "auto_wrap"], ["shard_grad_op", "offload"]]
KEYS = {"min_num_params": [0, 1000],
        "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer", ["LlamaDecoderLayer", "LlamaMLP"],
                                          "LlamaDecoderLayer,LlamaMLP"],
        "auto_wrap_policy": ["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP", "size_based_wrap", "BLOCKS"],
        "backward_prefetch": ["backward_pre", "BACKWARD_POST", "NO_PREFETCH", "SIDEWAYS"],
        "forward_prefetch": [True, False, "true"], "limit_all_gathers": [True, False],
        "use_orig_params": [True, False], "sync_module_states": [True, False],
        "cpu_ram_efficient_loading": [True, False, "true"], "activation_checkpointing": [True, False, "true", "maybe"],
        "reshard_after_forward": [True, False, "full_shard", "shard_grad_op", "maybe"],
        "cpu_offload": [True, False], "offload_params": [True, False], "sharding_strategy": ["SHARD_GRAD_OP", "NO_SHARD"],
        "state_dict_type": ["FULL_STATE_DICT", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT", "WHOLE"],
        "xla": [True, False], "xla_fsdp_v2": [False], "xla_fsdp_grad_ckpt": [False], "xla_fsdp_settings": [{}],
        "transformer_layer_cls": ["LlamaDecoderLayer"]}


def case_of(words, **keys):
    return accelerate_oracle.case_of({"fsdp": words, "fsdp_config": keys})


def cases():
    for words in WORDS:
        yield accelerate_oracle.case_of({"fsdp": words})
        yield case_of(words, version=1)
    for version in (1, 2, "2", 3, "x", None):
        yield case_of(True, version=version)
    for version, (key, value) in itertools.product((1, 2), accelerate_oracle.every(KEYS)):
        yield case_of(True, version=version, **{key: value})
    for key in ("version", "min_num_params", "cpu_offload", "reshard_after_forward"):
        yield case_of(True, **{"fsdp_" + key: {"version": 1}.get(key, KEYS.get(key, [1])[0])})
    for words, key in itertools.product((None, False, ""), ("state_dict_type", "auto_wrap_policy", "sharding_strategy")):
        yield case_of(words, version=2, **{key: KEYS[key][-1]})
    yield case_of(True, version=1, auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=0)
    yield case_of(True, version=2, auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=1000)
    yield case_of("no_shard", version=1, cpu_offload=True)
    yield case_of(True, version=2, sharding_strategy="NO_SHARD", cpu_offload=True)
    yield case_of("full_shard", version=2, xla=True, auto_wrap_policy="BLOCKS")
    yield case_of(None, version=2)
    yield case_of("full_shard", version=2, reshard_after_forward=False)
    yield case_of("full_shard offload", version=2, cpu_offload=False)
    generator = oracle.random.Random(6)
    for _ in range(20):
        yield random_case(generator)


def random_case(generator):
    version = {} if generator.random() < 0.3 else {"version": generator.choice((1, 2))}
    words = generator.choice((True, *WORDS))
    return case_of(words, **version, **accelerate_oracle.random_keys(generator, KEYS, 4))


if __name__ == "__main__":
    sys.exit(oracle.run(lambda: Transformers().outcome, cases, random_case))
