"""What transformers says. oracle.py TASK ARGUMENTS...: each task prints or writes what the tests in this folder compare with.

families OUTPUT            one tiny random model folder a family, weights with standard deviation 0.3, and logits.f32 of ids.i32
logits FOLDER IDS LENGTH   IDS: int32 file of passages of LENGTH tokens; writes IDS.logits, the last position's, fp32
loads (FOLDER REFERENCE)*  transformers loads FOLDER with nothing missing or left over, and gives REFERENCE's weights bit for bit
train FOLDER BATCHES ...   a plain training loop; see train()
"""

import json
import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy
import torch
import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

VOCABULARY, LENGTH = 199, 40
SIZES = dict(vocab_size=VOCABULARY, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2, head_dim=8, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}


def families():
    t = transformers
    yield "llama", t.LlamaForCausalLM(t.LlamaConfig(**SIZES))
    yield "llama_scaled", t.LlamaForCausalLM(t.LlamaConfig(**SIZES, rope_parameters=LLAMA3, tie_word_embeddings=True))
    yield "llama_biases", t.LlamaForCausalLM(t.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True))
    yield "mistral", t.MistralForCausalLM(t.MistralConfig(**SIZES, sliding_window=7))
    yield "qwen2", t.Qwen2ForCausalLM(t.Qwen2Config(**{k: v for k, v in SIZES.items() if k != "head_dim"}, tie_word_embeddings=True))
    yield "qwen3", t.Qwen3ForCausalLM(t.Qwen3Config(**SIZES))
    yield "gemma", t.GemmaForCausalLM(t.GemmaConfig(**SIZES))
    yield "gemma2", t.Gemma2ForCausalLM(t.Gemma2Config(**SIZES, sliding_window=9, query_pre_attn_scalar=24))
    yield "gemma3", t.Gemma3ForCausalLM(t.Gemma3TextConfig(**SIZES, sliding_window=9, query_pre_attn_scalar=24))
    yield "gpt2", t.GPT2LMHeadModel(t.GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=48, n_layer=3, n_head=6))


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def make_families(output):
    torch.manual_seed(5)
    ids = torch.randint(0, VOCABULARY, (2, LENGTH))
    for name, model in families():
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0, 0.3)
        model.save_pretrained(pathlib.Path(output) / name)
        with torch.no_grad():
            logits = load(pathlib.Path(output) / name)(ids).logits[:, -1]
        logits.numpy().astype(numpy.float32).tofile(pathlib.Path(output) / name / "logits.f32")
    ids.numpy().astype(numpy.int32).tofile(pathlib.Path(output) / "ids.i32")


def logits(folder, ids_file, length):
    ids = torch.from_numpy(numpy.fromfile(ids_file, dtype=numpy.int32).astype(numpy.int64)).view(-1, int(length))
    model = load(folder)
    with torch.no_grad():
        result = model(ids, logits_to_keep=1).logits[:, -1]
    result.numpy().astype(numpy.float32).tofile(ids_file + ".logits")


def generate(folder, max_tokens, *prompts):
    """Prints a JSON list of the greedy continuations."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = load(folder)
    texts = []
    for prompt in prompts:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=int(max_tokens), do_sample=False)
        texts.append(tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True))
    print(json.dumps(texts))


def loads(*folders):
    for folder, reference in zip(folders[::2], folders[1::2]):
        check_loads(folder, reference)


def check_loads(folder, reference):
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    for kind, names in info.items():
        if names:
            sys.exit(f"{folder}: {kind}: {names}")
    own, others = loaded.state_dict(), load(reference).state_dict()
    if own.keys() != others.keys():
        sys.exit(f"{folder} has other tensors than {reference}: {own.keys() ^ others.keys()}")
    for name, tensor in own.items():
        if not torch.equal(tensor, others[name]):
            sys.exit(f"{folder}: {name} differs")


def train(folder, batches, options):
    """BATCHES: int32 [steps, 2, B, T], ids and labels (-1: none). Prints the loss of each step."""
    o = json.loads(options)
    data = torch.from_numpy(numpy.fromfile(batches, dtype=numpy.int32).astype(numpy.int64)).view(-1, 2, o["batch"], o["length"])
    model = load(folder)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": o["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
                                  lr=o["learning_rate"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    losses = []
    for ids, labels in data:
        out = model(ids).logits
        loss = torch.nn.functional.cross_entropy(out.flatten(0, 1), labels.flatten(), ignore_index=-1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), o["clip"])
        optimizer.step()
        losses.append(loss.item())
    print(json.dumps(losses))


if __name__ == "__main__":
    torch.set_num_threads(2)
    {"families": make_families, "logits": logits, "generate": generate, "loads": loads, "train": train}[sys.argv[1]](*sys.argv[2:])
