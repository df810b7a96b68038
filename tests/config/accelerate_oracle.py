#!/usr/bin/env python3
"""What accelerate 1.15's own launcher and plugins make of its YAML files: see oracle.py.

Its launcher reads each file and makes the environment of the ranks, in which its plugins are made; nothing is launched. Where
it would look at the machine (a free port, CUDA's device) it gets an answer that is the same everywhere.
"""
import itertools
import os
import sys
import tempfile
import types
import unittest.mock

import oracle

TYPES = ["NO", "MULTI_CPU", "MULTI_GPU", "FSDP", "DEEPSPEED"]
OTHER_TYPES = ["MEGATRON_LM", "XLA", "MULTI_NPU", "MULTI_XPU", "TP", "TPU", "fsdp", "MULTIGPU", "", None, True]


class Accelerate:
    def __init__(self):
        import torch
        from accelerate.commands import launch
        from accelerate.parallelism_config import ParallelismConfig
        from accelerate.utils import dataclasses
        from accelerate.utils import launch as environment
        self.launch, self.parallelism_class, self.dataclasses = launch, ParallelismConfig, dataclasses
        self.parser = launch.launch_command_parser()
        environment.is_port_in_use = lambda port: int(port) < 0
        environment.get_free_port = lambda: 1
        dataclasses.is_cuda_available = lambda: True
        torch.cuda.current_device = lambda: 0

    def outcome(self, case):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ):
            for name, content in case.get("files", {}).items():
                oracle.write(os.path.join(folder, name), oracle.json.dumps(content))
            file = os.path.join(folder, "accelerate.yaml")
            oracle.write(file, case.get("text") or oracle.json.dumps(case["config"]))
            before = os.getcwd()
            os.chdir(folder)
            try:
                return {"accepted": True, "values": self.values(file)}
            except (Exception, SystemExit):  # pylint: disable=broad-except  # whatever it throws, it is a refusal
                return {"accepted": False}
            finally:
                os.chdir(before)

    def values(self, file):
        args = self.parser.parse_args(["--config_file", file, "train.py"])
        args, defaults, _ = self.launch._validate_launch_command(args)
        kind = str(defaults.distributed_type.value)
        cmd_env = self.environment(args, defaults)
        os.environ.update(cmd_env)
        values = {"processes": str(args.num_processes), "machines": str(args.num_machines or 1),
                  "precision": cmd_env["ACCELERATE_MIXED_PRECISION"]}
        meeting = {"rank": "machine_rank", "address": "main_process_ip", "port": "main_process_port"}
        values.update({name: str(getattr(args, key)) for name, key in meeting.items() if getattr(defaults, key)})
        axes = self.axes(args, kind)
        if args.use_fsdp:
            values.update(fsdp_values(self.dataclasses.FullyShardedDataParallelPlugin()))
            if axes.get("dp_replicate", "1") != "1":
                values["strategy"] = "hybrid_shard"
        elif args.use_deepspeed:
            plugin = self.dataclasses.DeepSpeedPlugin()
            plugin.set_mixed_precision(values["precision"])
            values.update(deepspeed_values(plugin))
        elif kind in TYPES:
            values["strategy"] = "ddp"
        return {**values, **axes}

    def environment(self, args, defaults):
        if args.use_deepspeed and not args.cpu:
            args.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config)
            return self.launch.prepare_deepspeed_cmd_env(args)[1]
        if (args.use_fsdp or args.use_megatron_lm or args.multi_gpu) and not args.cpu:
            return self.launch.prepare_multi_gpu_env(args)
        return self.launch.prepare_simple_launcher_cmd_env(args)[1]

    def axes(self, args, kind):
        if os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG", "false") != "true":
            return {}
        made = self.parallelism_class()
        made._validate_accelerator(types.SimpleNamespace(
            multi_device=kind.startswith("MULTI_"), num_processes=args.num_processes, is_main_process=True,
            is_fsdp2=args.use_fsdp and int(args.fsdp_version) == 2, distributed_type=kind))
        if made.total_size == 1:  # no mesh
            return {}
        return {"dp_replicate": str(made.dp_replicate_size), "dp_shard": str(made.dp_shard_size)}


def fsdp_values(plugin):
    from torch.distributed.fsdp import BackwardPrefetch
    if plugin.fsdp_version == 2:
        strategy = "full_shard" if plugin.reshard_after_forward else "shard_grad_op"
        offloads = type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy"
    else:
        strategy = (plugin.sharding_strategy or plugin.reshard_after_forward).name.lower().lstrip("_")
        offloads = plugin.cpu_offload.offload_params
    policy = getattr(plugin.auto_wrap_policy, "__name__", "none").split("_")[0]
    values = {"strategy": strategy, "wrap": policy, "offload_param": "cpu" if offloads else "none",
              "recompute": "true" if plugin.activation_checkpointing else "false",
              "state_dict": plugin.state_dict_type.name.split("_")[0].lower()}
    if plugin.fsdp_version == 1:
        ahead = plugin.backward_prefetch == BackwardPrefetch.BACKWARD_PRE or plugin.forward_prefetch
        values["gather_ahead"] = "1" if ahead else "0"
    if policy == "transformer":
        values["classes"] = ",".join(plugin.transformer_cls_names_to_wrap or [])
    if policy == "size" and plugin.min_num_params > 0:
        values["min_params"] = str(plugin.min_num_params)
    elif policy == "size":  # accelerate leaves the policy out
        values["wrap"] = "none"
    return values


def deepspeed_values(plugin):
    return {"strategy": {0: "ddp"}.get(plugin.zero_stage, f"zero{plugin.zero_stage}"),
            "accumulation": str(plugin.gradient_accumulation_steps),
            "clipping": format(plugin.gradient_clipping, "g") if plugin.gradient_clipping != "auto" else "auto",
            "offload_optimizer": str(plugin.offload_optimizer_device),
            "offload_param": str(plugin.offload_param_device)}


TOP = {"compute_environment": ["LOCAL_MACHINE", "AMAZON_SAGEMAKER", "CLOUD"],
       "mixed_precision": ["no", "fp16", "bf16", "fp8", "BF16", "int8", None],
       "num_processes": [1, 2, 8, 0, -1, "4", "x", None],
       "num_machines": [1, 2, "1", None],
       "machine_rank": [0, 1], "main_process_ip": ["10.0.0.1", None],
       "main_process_port": [29501, 0, "29501", "auto", None],
       "rdzv_backend": ["static", "c10d", None], "same_network": [True, False],
       "use_cpu": [True, False], "debug": [True, False], "gpu_ids": ["all", "0,1", None],
       "enable_cpu_affinity": [True], "main_training_function": ["main", "train"],
       "downcast_bf16": ["no", False, True], "tpu_name": [None, "pod"], "tpu_env": [[], ["A=1"]], "tpu_use_sudo": [False],
       "tpu_use_cluster": [False], "tpu_zone": [None], "command_file": [None], "commands": [None], "tpu_vm": [None],
       "dynamo_config": [{}, {"dynamo_backend": "INDUCTOR"}], "dynamo_backend": ["NO", "INDUCTOR"],
       "fp16": [True, False], "fp8_config": [{}], "megatron_lm_config": [{}], "mpirun_config": [{}],
       "fsdp_config": [{}, None], "deepspeed_config": [{}, None], "parallelism_config": [{}, None],
       "num_process": [4], "num_cpu_threads_per_process": [2], "mixed_precison": ["bf16"]}
FSDP = {"fsdp_sharding_strategy": ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2", 1, 2,
                                   "3", 5, 6, "FULL"],
        "fsdp_reshard_after_forward": [True, False, "true", "FULL_SHARD", "SHARD_GRAD_OP", "maybe"],
        "fsdp_offload_params": [True, False, "true", "maybe"],
        "fsdp_auto_wrap_policy": ["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP", "size_based_wrap", "BLOCKS"],
        "fsdp_transformer_layer_cls_to_wrap": ["LlamaDecoderLayer", "LlamaDecoderLayer,LlamaMLP", "LlamaDecoderLayer, LlamaMLP",
                                               ["LlamaDecoderLayer"]],
        "fsdp_min_num_params": [0, 1000, "x"],
        "fsdp_backward_prefetch": ["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH", "backward_pre", "SIDEWAYS"],
        "fsdp_backward_prefetch_policy": ["BACKWARD_PRE", "BACKWARD_POST"],
        "fsdp_forward_prefetch": [True, False],
        "fsdp_state_dict_type": ["FULL_STATE_DICT", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT", "2", "WHOLE"],
        "fsdp_use_orig_params": [True, False], "fsdp_cpu_ram_efficient_loading": [True, False],
        "fsdp_sync_module_states": [True, False],
        "fsdp_activation_checkpointing": [True, False, "maybe"], "fsdp_activation_checkpointing_offload": [True, False],
        "fsdp_ignored_modules": ["lm_head", None], "fsdp_sharding_strateg": ["FULL_SHARD"]}
DEEPSPEED = {"zero_stage": [0, 1, 2, 3, 4, "2", "x"], "gradient_accumulation_steps": [1, 4, "auto", 0, "x"],
             "gradient_clipping": [1.0, 0.5, 0, "auto", -1],
             "offload_optimizer_device": ["none", "cpu", "nvme", "disk"],
             "offload_param_device": ["none", "cpu", "nvme"],
             "zero3_init_flag": [True, False], "zero3_save_16bit_model": [True, False],
             "deepspeed_multinode_launcher": ["standard", "pdsh"], "deepspeed_hostfile": ["hosts"],
             "offload_optimizer_nvme_path": ["/nvme"], "deepspeed_moe_layer_cls_names": ["MixtralSparseMoeBlock"],
             "zero_stagee": [2]}
PARALLELISM = {"dp_replicate_size": [1, 2, 0, "x"], "dp_shard_size": [1, 2, 4], "tp_size": [1, 2], "cp_size": [1, 2],
               "sp_size": [1, 2], "cp_backend": ["torch", "ring"], "cp_comm_strategy": ["allgather"],
               "sp_seq_length": [1024], "sp_backend": ["deepspeed"]}


def case_of(config, about=None, **more):
    return {"about": about or ", ".join(f"{key} {oracle.json.dumps(value)}" for key, value in flat(config)),
            "config": config, **more}


def flat(config):
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from ((f"{key}.{below}", leaf) for below, leaf in flat(value))
        else:
            yield key, value


def file_of(kind, **more):
    return {"distributed_type": kind, "num_processes": 4, **more}


def fsdp_file(version, **keys):
    return file_of("FSDP", fsdp_config={"fsdp_version": version, **keys})


def parallel_file(**sizes):
    return file_of("FSDP", fsdp_config={"fsdp_version": 2},
                   parallelism_config={f"parallelism_config_{name}": size for name, size in sizes.items()})


def every(table):
    return ((key, value) for key, values in table.items() for value in values)


DS_FILE = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}, "gradient_clipping": 0.25}


PAIRS = [{"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_transformer_layer_cls_to_wrap": classes}
         for classes in FSDP["fsdp_transformer_layer_cls_to_wrap"]]
PAIRS += [{"fsdp_auto_wrap_policy": "SIZE_BASED_WRAP", "fsdp_min_num_params": bound} for bound in (0, 1000)]
PAIRS += [{"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_min_num_params": 1000},
          {"fsdp_backward_prefetch": "BACKWARD_PRE", "fsdp_backward_prefetch_policy": "BACKWARD_POST"},
          {"fsdp_backward_prefetch": "NO_PREFETCH", "fsdp_forward_prefetch": True},
          {"fsdp_sharding_strategy": "NO_SHARD", "fsdp_reshard_after_forward": True},
          {"fsdp_sharding_strategy": "SHARD_GRAD_OP", "fsdp_reshard_after_forward": False},
          {"fsdp_sharding_strategy": "NO_SHARD", "fsdp_offload_params": True},
          {"fsdp_activation_checkpointing": True, "fsdp_activation_checkpointing_offload": True}]


def special_cases():
    yield case_of({}, "nothing")
    yield case_of({"num_processes": 4})
    for kind in TYPES:
        yield case_of({"distributed_type": kind})
    two = {"num_machines": 2, "num_processes": 4}
    for kind in ("FSDP", "MULTI_GPU"):
        yield case_of(file_of(kind, **two, machine_rank=1, main_process_ip="10.0.0.1", main_process_port=29501))
        yield case_of(file_of(kind, gpu_ids="0"))
    for number in ("4", None):
        yield case_of({"distributed_type": "MULTI_GPU", "num_processes": number, "use_cpu": True})
    for word, text in (("NO", "distributed_type: NO\nnum_processes: 1\n"),
                       ("no", "distributed_type: MULTI_GPU\nmixed_precision: no\nnum_processes: 2\n"),
                       ("num_processes twice", "distributed_type: MULTI_GPU\nnum_processes: 2\nnum_processes: 4\n")):
        yield case_of({"text": word, "num_processes": 2}, text=text)
    for version, keys in itertools.product((1, 2), PAIRS):
        yield case_of(fsdp_file(version, **keys))
    yield case_of(file_of("FSDP"))
    for whole in (None, {}):
        yield case_of(file_of("FSDP", fsdp_config=whole))
    for version in ("1", "2", 3, "x", None):
        yield case_of(fsdp_file(version))
    for key in ("sharding_strategy", "offload_params", "auto_wrap_policy"):
        for value in FSDP["fsdp_" + key][:3]:
            yield case_of(file_of("FSDP", fsdp_config={"fsdp_version": 1, key: value}))
    for kind in ("NO", "MULTI_GPU", "DEEPSPEED"):
        yield case_of(file_of(kind, fsdp_config={"fsdp_version": 2}))
    for kind in ("NO", "MULTI_GPU", "FSDP"):
        yield case_of(file_of(kind, deepspeed_config={"zero_stage": 3}))
    yield case_of(file_of("DEEPSPEED", deepspeed_config={"deepspeed_config_file": "ds.json"}), files={"ds.json": DS_FILE})
    for beside in ({"zero_stage": 2}, {"gradient_clipping": 0.25}, {"zero3_init_flag": True}):
        yield case_of(file_of("DEEPSPEED", deepspeed_config={"deepspeed_config_file": "ds.json", **beside}),
                      files={"ds.json": DS_FILE})
    yield case_of(file_of("DEEPSPEED", deepspeed_config={"deepspeed_config_file": "none.json"}))
    yield case_of(file_of("DEEPSPEED", deepspeed_config={"zero_stage": 3, "offload_param_device": "cpu",
                                                         "offload_optimizer_device": "none"}))
    yield case_of(file_of("FSDP", parallelism_config={"parallelism_config_dp_shard_size": 4}))
    for version, prefix in ((1, "parallelism_config_"), (2, "")):
        yield case_of(file_of("FSDP", fsdp_config={"fsdp_version": version},
                              parallelism_config={prefix + "dp_shard_size": 4}))
    for kind in ("NO", "MULTI_GPU", "DEEPSPEED"):
        yield case_of(file_of(kind, parallelism_config={"parallelism_config_dp_replicate_size": 4}))


def cases():
    yield from special_cases()
    for kind in OTHER_TYPES:
        yield case_of(file_of(kind))
    for key, value in every(TOP):
        yield case_of({**file_of("MULTI_GPU"), key: value})
    for version, (key, value) in itertools.product((1, 2), every(FSDP)):
        yield case_of(fsdp_file(version, **{key: value}))
    for stage, (key, value) in itertools.product((2, 3), every(DEEPSPEED)):
        if key != "zero_stage" or stage == 2:
            yield case_of(file_of("DEEPSPEED", deepspeed_config={"zero_stage": stage, key: value}))
    for key, value in every(PARALLELISM):
        yield case_of(parallel_file(**{"dp_shard_size": 4, key: value}))
    for other in ("dp_replicate_size", "tp_size", "cp_size"):
        yield case_of(parallel_file(**{other: 2, "dp_shard_size": 2}))
    yield case_of(parallel_file(dp_replicate_size=2, dp_shard_size=4))
    generator = oracle.random.Random(6)
    for _ in range(40):
        yield random_case(generator)
    yield case_of({**parallel_file(dp_shard_size=4),
                   "fsdp_config": {"fsdp_version": 2, "fsdp_sharding_strategy": "NO_SHARD"}})


def random_keys(generator, table, most):
    chosen = generator.sample(list(table), generator.randint(0, most))
    return {key: generator.choice(table[key]) for key in chosen}


def random_case(generator):
    kind = generator.choice(TYPES[2:] + ["FSDP", "FSDP"])
    config = file_of(kind)
    if kind == "FSDP":
        version = generator.choice((1, 2))
        config["fsdp_config"] = {"fsdp_version": version, **random_keys(generator, FSDP, 4)}
        if generator.random() < 0.2:
            config["parallelism_config"] = {"parallelism_config_" + key: value for key, value in
                                            random_keys(generator, PARALLELISM, 2).items()}
    if kind == "DEEPSPEED":
        config["deepspeed_config"] = {"zero_stage": generator.choice((0, 1, 2, 3)), **random_keys(generator, DEEPSPEED, 3)}
    config.update(random_keys(generator, {key: TOP[key] for key in TOP if not key.endswith("_config")}, 2))
    return case_of(config)


if __name__ == "__main__":
    sys.exit(oracle.run(lambda: Accelerate().outcome, cases, random_case))
