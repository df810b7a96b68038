"""Tiny random models of every family, made and run by the Python package transformers.

    families.py OUTPUT

For each family, OUTPUT/NAME is a model folder with a file expected.safetensors beside it: ids [B, T], the logits [B, T, V], the sum of
the losses of all next tokens, its gradient of every parameter ("grad/NAME"), and a greedy continuation of the first ids of row 0. Weights
are drawn with a standard deviation of 0.3: with the usual 0.02 a missing soft cap or RoPE scaling would move the logits by 1e-7. Sequences
are longer than every window and every limit of a RoPE scaling.
"""

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors.torch import save_file

BATCH, LENGTH, PROMPT, CONTINUATION = 2, 80, 9, 12
SIZES = dict(
    vocab_size=97,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    pad_token_id=None,  # torch.nn.Embedding gives its row no gradient
)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
LONGROPE = dict(
    rope_type="longrope",
    factor=4.0,
    original_max_position_embeddings=32,
    short_factor=[1.0 + 0.1 * i for i in range(4)],
    long_factor=[1.5 + 0.5 * i for i in range(4)],
)
GEMMA = dict(head_dim=16, hidden_activation="gelu_pytorch_tanh")


def rope(theta, scaling):
    return dict(scaling, rope_theta=theta)


FAMILIES = {
    "llama": ("Llama", dict(attention_bias=True, mlp_bias=True)),
    "llama_llama3": ("Llama", dict(rope_parameters=rope(500000.0, LLAMA3), tie_word_embeddings=True)),
    "llama_linear": ("Llama", dict(rope_parameters=rope(10000.0, dict(rope_type="linear", factor=3.0)))),
    "llama_dynamic": ("Llama", dict(rope_parameters=rope(10000.0, dict(rope_type="dynamic", factor=3.0)))),
    "llama_yarn": ("Llama", dict(rope_parameters=rope(10000.0, YARN))),
    "llama_longrope": ("Llama", dict(rope_parameters=rope(10000.0, LONGROPE))),
    "smollm2": ("Llama", dict(hidden_size=36, num_attention_heads=9, num_key_value_heads=3, rope_parameters=rope(100000.0, dict(rope_type="default")),
                              tie_word_embeddings=True)),
    "mistral": ("Mistral", dict(sliding_window=11)),
    "qwen2": ("Qwen2", dict(use_sliding_window=True, sliding_window=13, max_window_layers=1)),
    "qwen3": ("Qwen3", dict(head_dim=20, rope_parameters=rope(1000000.0, YARN))),
    "gemma": ("Gemma", dict(GEMMA, num_key_value_heads=1)),
    "gemma2": ("Gemma2", dict(GEMMA, query_pre_attn_scalar=24, sliding_window=14, attn_logit_softcapping=3.0, final_logit_softcapping=4.0)),
    "gemma3": ("Gemma3", dict(GEMMA, query_pre_attn_scalar=24, sliding_window=12,
                              layer_types=["sliding_attention", "full_attention"],
                              rope_parameters=dict(sliding_attention=rope(10000.0, dict(rope_type="default")),
                                                   full_attention=rope(1000000.0, dict(rope_type="linear", factor=8.0))))),
    "gpt2": ("GPT2", dict(scale_attn_by_inverse_layer_idx=True)),
}  # fmt: skip


def make_model(architecture, options):
    if architecture == "GPT2":
        sizes = dict(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=128)
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **options, attn_implementation="eager"))
    config_name = architecture + ("TextConfig" if architecture == "Gemma3" else "Config")
    config = getattr(transformers, config_name)(**{**SIZES, **options}, attn_implementation="eager")
    return getattr(transformers, architecture + "ForCausalLM")(config)


def draw_weights(model, one_plus):
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.3)
        if parameter.dim() == 1 and not one_plus:
            parameter.data += 1.0  # norms, whose weights are near one; biases may be


def greedy(model, prompt):
    ids = list(prompt)
    for _ in range(CONTINUATION):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return torch.tensor(ids, dtype=torch.int32)


def write_family(folder, architecture, options):
    model = make_model(architecture, options).eval()
    draw_weights(model, architecture.startswith("Gemma"))
    model.save_pretrained(folder)
    model.double()  # what our fp32 is compared with should not round by itself
    ids = torch.randint(0, 97, (BATCH, LENGTH))
    logits = model(ids, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 97), ids[:, 1:].reshape(-1), reduction="sum")
    loss.backward()
    tensors = {"grad/" + name: parameter.grad for name, parameter in model.named_parameters()}
    tensors.update(ids=ids.to(torch.int32), logits=logits.detach(), loss=loss.detach().reshape(1), greedy=greedy(model, ids[0, :PROMPT].tolist()))
    as_float = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    save_file({name: tensor.contiguous() for name, tensor in as_float.items()}, os.path.join(folder, "expected.safetensors"))


def main(output):
    torch.set_num_threads(1)
    torch.manual_seed(20)
    for name, (architecture, options) in FAMILIES.items():
        write_family(os.path.join(output, name), architecture, options)


main(sys.argv[1])
