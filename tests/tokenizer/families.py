"""Small tokenizers with the pipelines of the families' own tokenizer.json, for oracle.py.

The vocabularies are trained here; normalizer, pre-tokenizer, decoder, post-processor, model options and kinds of added tokens are
those of the real files.
"""

import json
import os

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
REPLACE_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}


def added(id, content, special=True, **flags):
    token = {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {**token, "special": special, **flags}


def byte_level(prefix=False, use_regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": use_regex}


def sequence(kind, steps):
    return {"type": "Sequence", kind: steps}


def regex_split(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def template(before):
    text = [{"Sequence": {"id": "A", "type_id": 0}}]
    tokens = [{"SpecialToken": {"id": name, "type_id": 0}} for name in before]
    defined = {name: {"id": name, "ids": [id], "tokens": [name]} for name, id in before.items()}
    pair = tokens + text + [{"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": tokens + text, "pair": pair, "special_tokens": defined}


def characters_decoder(strip):
    steps = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    return sequence("decoders", steps + ([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if strip else []))


def learn(texts, normalizer, pre_tokenizer, size, alphabet, limit=None):
    """Tokens in order of id, and merges."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    limits = {} if limit is None else {"limit_alphabet": limit}
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=alphabet, **limits))
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), model["merges"]


def describe(tokens, merges, *, specials, normalizer, pre_tokenizer, decoder, post_processor, model):
    names = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
    options = {"fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    vocab = {token: id for id, token in enumerate(tokens)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": specials,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder,
        "model": {**names, **options, **model, "vocab": vocab, "merges": merges},
    }


def llama2(texts, size=1200):
    tokens, merges = learn(texts, None, pre_tokenizers.Metaspace(prepend_scheme="always", split=True), size, [], 250)
    fallback = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    head = ["<unk>", "<s>", "</s>"]
    tokens = [token for token in tokens if token not in head + BYTES]  # the texts hold them, too
    steps = [{"type": "Prepend", "prepend": "▁"}, REPLACE_SPACES]
    legacy = describe(
        head + BYTES + tokens,
        merges,
        specials=[added(id, name, normalized=True) for id, name in enumerate(head)],
        normalizer=sequence("normalizers", steps),
        pre_tokenizer=None,
        decoder=characters_decoder(strip=True),
        post_processor=template({"<s>": 1}),
        model=fallback,
    )
    instructions = ["[INST]", "[/INST]", "[TOOL_CALLS]"]
    words = [token for token in tokens if token not in instructions]
    mistral = describe(
        head + instructions + BYTES + words,
        merges,
        specials=[added(id, name) for id, name in enumerate(head + instructions)]
        + [added(3 + 3 + 256 + len(words), "<|user|>", rstrip=True)],
        normalizer=None,
        pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
        decoder=characters_decoder(strip=True),
        post_processor=template({"<s>": 1}),
        model=fallback,
    )
    return {"llama2": (legacy, "</s>", {"add_bos_token": True, "add_eos_token": False}), "mistral": (mistral, "</s>", {})}


def gemma(texts):
    spaces = normalizers.Replace(" ", "▁")
    # Lines, with all spaces inside: tokens of several spaces, and some that hold a space between words.
    tokens, merges = learn(texts, spaces, pre_tokenizers.Split(Regex(r"▁+|[^▁]+▁?"), "isolated"), 1200, ["▁", "\n"], 250)
    head = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_turn>", "<end_of_turn>"]
    literal = ["\n\n", "\n\n\n", "▁▁", "▁▁▁", "<table>"]
    names = head + literal + BYTES
    names += [token for token in tokens if token not in literal]
    return {
        "gemma": (
            describe(
                names,
                merges,
                specials=[added(id, name) for id, name in enumerate(head)]
                + [added(len(head) + i, name, special=False) for i, name in enumerate(literal)],
                normalizer=REPLACE_SPACES,
                pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
                decoder=characters_decoder(strip=False),
                post_processor=template({"<bos>": 2}),
                model={"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
            ),
            "<eos>",
            {"bos_token": "<bos>", "pad_token": "<pad>"},
        )
    }


def byte_levels(texts):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def row(learner, size, end, first, extra, *, normalizer=None, pre_tokenizer, post_processor=None, model=None):
        tokens, merges = learn(texts, None, learner, size, alphabet)
        tokens = (first or []) + tokens
        specials = [added(id, name) for id, name in enumerate(first or [])]
        specials += [added(len(tokens) + i, name, **flags) for i, (name, flags) in enumerate(extra.items())]
        if model and model.get("ignore_merges"):
            merges = merges[:-150]  # tokens that no merge makes any more, as Llama 3 has
        description = describe(
            tokens,
            merges,
            specials=specials,
            normalizer=normalizer,
            pre_tokenizer=pre_tokenizer,
            decoder=byte_level(True),
            post_processor=post_processor(len(tokens)) if post_processor else byte_level(True),
            model=model or {},
        )
        return description, end, {}

    split3 = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), bytes_only])
    split1 = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN), "isolated"), bytes_only])
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), plain])
    return {
        "gpt2": row(plain, 900, "<|endoftext|>", None, {"<|endoftext|>": {}}, pre_tokenizer=byte_level()),
        "llama3": row(
            split3,
            1100,
            "<|end_of_text|>",
            None,
            {name: {} for name in ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|eot_id|>")},
            pre_tokenizer=sequence("pretokenizers", [regex_split(LLAMA3), byte_level(use_regex=False)]),
            post_processor=lambda begin: sequence("processors", [byte_level(True), template({"<|begin_of_text|>": begin})]),
            model={"ignore_merges": True},
        ),
        "qwen3": row(
            split1,
            1000,
            "<|im_end|>",
            None,
            {"<|endoftext|>": {}, "<|im_start|>": {}, "<|im_end|>": {}, "<tool_call>": {"special": False}},
            normalizer={"type": "NFC"},
            pre_tokenizer=sequence("pretokenizers", [regex_split(QWEN), byte_level(use_regex=False)]),
        ),
        "smollm2": row(
            digits,
            900,
            "<|im_end|>",
            ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            {},
            pre_tokenizer=sequence("pretokenizers", [{"type": "Digits", "individual_digits": True}, byte_level()]),
        ),
    }


def write(texts, folder):
    write_each({**llama2(texts), **gemma(texts), **byte_levels(texts)}, folder)


def write_each(described, folder):
    for name, (description, end, config) in described.items():
        os.makedirs(f"{folder}/{name}", exist_ok=True)
        with open(f"{folder}/{name}/tokenizer.json", "w", encoding="utf-8") as out:
            json.dump(description, out, ensure_ascii=False, separators=(",", ":"))
            out.write("\n")
        with open(f"{folder}/{name}/tokenizer_config.json", "w", encoding="utf-8") as out:
            json.dump({"bos_token": "<s>" if end == "</s>" else None, "eos_token": end, **config}, out)
            out.write("\n")
