"""Tokenizers whose pipelines are drawn at random, for oracle.py: what nobody would write, but the package accepts."""

import json
import os
import random

from tokenizers import Tokenizer

import families

COUNT = 24
CONTENTS = ["<s>", "</s>", "<word>", "ship", "e\u0301", "<|", "  ", "\n\n", "▁▁", "<l>", "The", "é", "▁the", "[INST]", "1"]
REGEXES = [r"\p{L}+", r"\s+", r"[\s\d]+", r"\p{N}{1,3}", r"x*|(?=\p{Lu})", r"[^\s]+", r" ?\p{L}+|\s+(?!\S)", r"▁+|\p{P}"]


def bases():
    """Tokens and merges of the families, and the same with spaces for the marks of spaces."""

    def family(name):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "families", name)
        description = json.load(open(f"{folder}/tokenizer.json", encoding="utf-8"))
        special = {token["content"] for token in description["added_tokens"]} | set(families.BYTES)
        merges = [merge for merge in description["model"]["merges"] if "".join(merge) not in special]
        return [token for token in description["model"]["vocab"] if token not in special], merges

    tokens, merges = family("gemma")  # has tokens like "the▁"
    spaced = [token.replace("▁", " ") for token in tokens], [[part.replace("▁", " ") for part in merge] for merge in merges]
    return {"words": family("llama2"), "joined": (tokens, merges), "spaces": spaced, "bytes": family("gpt2")}


def pattern(draw, may_be_empty=True):
    if draw.random() < 0.5:
        return {"String": draw.choice([" ", "▁", "e", "th", "\n", "'", "  "])}
    return {"Regex": draw.choice(REGEXES if may_be_empty else [regex for regex in REGEXES if "*" not in regex])}


def normalizer(draw):
    kind = draw.choice(["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "Prepend", "Replace", "Replace", "Replace"])
    if kind == "Strip":
        return {"type": kind, "strip_left": draw.random() < 0.6, "strip_right": draw.random() < 0.6}
    if kind == "Prepend":
        return {"type": kind, "prepend": draw.choice(["▁", " ", "ab"])}
    if kind == "Replace":
        return {"type": kind, "pattern": pattern(draw, False), "content": draw.choice(["▁", "▁", "", " ", "xy", "é"])}
    return {"type": kind}


def metaspace(draw):
    scheme = draw.choice(["always", "first", "never"])
    return {"type": "Metaspace", "replacement": draw.choice("▁▁▁_"), "prepend_scheme": scheme, "split": draw.random() < 0.5}


def pre_tokenizer(draw):
    behavior = draw.choice(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"])
    kind = draw.choice(["Metaspace", "Metaspace", "Split", "Split", "Digits", "Punctuation", "WhitespaceSplit", "Whitespace"])
    if kind == "Metaspace":
        return metaspace(draw)
    if kind == "Split":
        return {"type": kind, "pattern": pattern(draw), "behavior": behavior, "invert": draw.random() < 0.3}
    if kind == "Digits":
        return {"type": kind, "individual_digits": draw.random() < 0.5}
    return {"type": kind, "behavior": behavior} if kind == "Punctuation" else {"type": kind}


def decoder(draw):
    if draw.random() < 0.15:
        return None
    steps = []
    for _ in range(draw.randrange(3)):
        steps.append(
            draw.choice(
                [
                    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                    {"type": "Replace", "pattern": {"String": "the"}, "content": "THE"},
                    {"type": "Strip", "content": "▁", "start": draw.randrange(3), "stop": 0},
                    metaspace(draw),
                ]
            )
        )
    if draw.random() < 0.7:
        steps.append({"type": "ByteFallback"})
    if draw.random() < 0.7:
        steps.append({"type": "Fuse"})
        if draw.random() < 0.5:
            steps.append({"type": "Strip", "content": " ", "start": draw.randrange(3), "stop": 0})
    return families.sequence("decoders", steps)


def sequence_or_one(draw, kind, steps):
    if not steps:
        return None
    return steps[0] if len(steps) == 1 and draw.random() < 0.5 else families.sequence(kind, steps)


def added_tokens(draw, vocab):
    """In the order in which the package numbers those that are not in the vocabulary."""
    found, free = [], len(vocab)
    for content in draw.sample(CONTENTS, draw.randrange(6)):
        flags = {flag: draw.random() < 0.3 for flag in ("single_word", "lstrip", "rstrip", "normalized")}
        if content in vocab:
            found.append(families.added(vocab[content], content, draw.random() < 0.5, **flags))
        elif all(token["id"] < free for token in found):
            found.append(families.added(free, content, draw.random() < 0.5, **flags))
            free += 1
    return found


def fallback(draw, tokens, merges):
    """Model options, with byte tokens: all, some or none; now and then some that merge."""
    tokens = ["<unk>"] + tokens
    options = {"byte_fallback": draw.random() < 0.6, "fuse_unk": draw.random() < 0.5, "unk_token": draw.choice(["<unk>", "<unk>", None, "e"])}
    share = draw.choice([0, 0.5, 1, 1])
    tokens = [byte for byte in families.BYTES if draw.random() < share] + tokens
    if share == 1 and draw.random() < 0.3:
        tokens.append("<0xE4><0xB8>")
        merges = merges + [["<0xE4>", "<0xB8>"]]
    return options, tokens, merges


def draw_one(draw, learnt):
    base = draw.choice(["words", "joined", "joined", "spaces", "bytes"])
    tokens, merges = learnt[base]
    is_bytes = base == "bytes"
    options = {}
    if not is_bytes:
        options, tokens, merges = fallback(draw, tokens, merges)
    tokens = tokens + ["<|endoftext|>"]
    options["ignore_merges"] = draw.random() < 0.3
    before = [normalizer(draw) for _ in range(draw.choice([0, 0, 1, 1, 2, 3]))]
    steps = [pre_tokenizer(draw) for _ in range(draw.choice([0, 0, 1, 1, 2, 3]))]
    if is_bytes:
        steps.append(families.byte_level(draw.random() < 0.3, draw.random() < 0.5))
    specials = added_tokens(draw, {token: id for id, token in enumerate(tokens)})
    first = any(step.get("prepend_scheme") == "first" for step in steps)
    late = any(step.get("prepend_scheme") == "first" for step in steps[1:])
    if before and first and (late or any(token["normalized"] for token in specials)):
        return None  # refused
    if late and sum(step["type"] == "Metaspace" for step in steps) > 1:
        return None  # refused
    description = families.describe(
        tokens,
        merges,
        specials=specials,
        normalizer=sequence_or_one(draw, "normalizers", before),
        pre_tokenizer=sequence_or_one(draw, "pretokenizers", steps),
        decoder=families.byte_level() if is_bytes else decoder(draw),
        post_processor=None,
        model=options,
    )
    # Texts differ by design: byte-level added tokens come back as they are written, and bytes that are no UTF-8 as bytes.
    return description, (is_bytes and before) or "<0xE4><0xB8>" in tokens


def same_after_normalisation(tokenizer, added):
    """Which of the two the package then finds is chance."""
    if tokenizer.normalizer is None:
        return False
    forms = [tokenizer.normalizer.normalize_str(token["content"]) for token in added if token["normalized"]]
    return "" in forms or len(set(forms)) < len(forms)


def write(seed, texts, folder):
    draw = random.Random(seed)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # panics print pages
    learnt = bases()
    made = 0
    while made < COUNT:
        drawn = draw_one(draw, learnt)
        if drawn is None:
            continue
        description, ids_only = drawn
        try:  # the package refuses some, and stumbles over others
            tokenizer = Tokenizer.from_str(json.dumps(description))
            if same_after_normalisation(tokenizer, description["added_tokens"]):
                continue
            for text in texts:
                tokenizer.encode(text, add_special_tokens=False)
        except BaseException as error:  # a panic of Rust is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            continue
        os.makedirs(f"{folder}/{made}")
        with open(f"{folder}/{made}/tokenizer.json", "w", encoding="utf-8") as out:
            json.dump(description, out, ensure_ascii=False)
        if ids_only:
            open(f"{folder}/{made}/ids_only", "w").close()
        made += 1
