"""What the Python package tokenizers says, for the tests and the benchmark.

oracle.py encode TOKENIZER DOCUMENTS IDS    TOKENIZER: a tokenizer.json or a folder with vocab.json and merges.txt
oracle.py train DOCUMENTS FOLDER            writes FOLDER/NAME/tokenizer.json, one for each kind below
oracle.py families DOCUMENTS FOLDER         the same for families.py
oracle.py llama SIZE DOCUMENTS FOLDER       Llama 2 and Mistral alone, with vocabularies of about that size
oracle.py random SEED DOCUMENTS FOLDER      the same for pipelines drawn at random (random_pipelines.py)
oracle.py all FOLDER DOCUMENTS              writes FOLDER/NAME/ids and FOLDER/NAME/text, what it decodes, for each
oracle.py forms CODEPOINTS FILE             UTF-8 text through each Unicode normalizer, five records
oracle.py golden TOKENIZER DOCUMENTS FILE   the same ids as JSON: an array a document
oracle.py time TOKENIZER DOCUMENTS          on each line read, encodes all on one thread: CPU seconds, number of ids

DOCUMENTS and IDS: records of a little-endian uint32 count, then that many bytes or uint32 ids.
"""

import json
import os
import struct
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def read_documents(path):
    data = open(path, "rb").read()
    documents, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        documents.append(data[at + 4 : at + 4 + size].decode("utf-8", errors="replace"))
        at += 4 + size
    return documents


def load(path):
    if path.endswith(".json"):
        return Tokenizer.from_file(path)
    tokenizer = Tokenizer(models.BPE.from_file(f"{path}/vocab.json", f"{path}/merges.txt"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def encode(tokenizer_path, documents_path, ids_path):
    tokenizer = load(tokenizer_path)
    with open(ids_path, "wb") as out:
        for document in read_documents(documents_path):
            ids = tokenizer.encode(document, add_special_tokens=False).ids
            out.write(struct.pack(f"<I{len(ids)}I", len(ids), *ids))


def encode_all(folder, documents_path):
    documents = read_documents(documents_path)
    for name in sorted(os.listdir(folder)):
        tokenizer = Tokenizer.from_file(f"{folder}/{name}/tokenizer.json")
        with open(f"{folder}/{name}/ids", "wb") as ids_out, open(f"{folder}/{name}/text", "wb") as text_out:
            for document in documents:
                ids = tokenizer.encode(document, add_special_tokens=False).ids
                text = tokenizer.decode(ids, skip_special_tokens=False).encode()
                ids_out.write(struct.pack(f"<I{len(ids)}I", len(ids), *ids))
                text_out.write(struct.pack("<I", len(text)) + text)


def forms(text_path, file):
    text = open(text_path, encoding="utf-8", newline="").read()
    with open(file, "wb") as out:
        for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase"):
            normal = getattr(normalizers, name)().normalize_str(text).encode()
            out.write(struct.pack("<I", len(normal)) + normal)


def write_families(documents_path, folder):
    import families

    families.write(read_documents(documents_path), folder)


def write_llama(size, documents_path, folder):
    import families

    families.write_each(families.llama2(read_documents(documents_path), int(size)), folder)


def write_random(seed, documents_path, folder):
    import random_pipelines

    random_pipelines.write(int(seed), read_documents(documents_path), folder)


def byte_level(prefix=False, use_regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)


def split(pattern, behavior, invert=False):
    return pre_tokenizers.Split(pattern if isinstance(pattern, str) else pattern, behavior, invert)


def kinds():
    """name -> (normalizer, pre-tokenizer, changes to the model's JSON, whether all bytes are in the vocabulary)"""
    sequence = pre_tokenizers.Sequence
    bytes_only = byte_level(use_regex=False)
    return {
        "plain": (None, byte_level(), {}, True),
        "prefix": (None, byte_level(prefix=True), {}, True),
        "digits": (None, sequence([pre_tokenizers.Digits(individual_digits=True), byte_level()]), {}, True),
        "digit_runs": (None, sequence([pre_tokenizers.Digits(individual_digits=False), byte_level(prefix=True)]), {}, True),
        "nfc": (normalizers.NFC(), sequence([split(Regex(SPLIT), "isolated"), bytes_only]), {"ignore_merges": True}, True),
        "previous": (None, sequence([split(" ", "merged_with_previous"), bytes_only]), {}, True),
        "next": (None, sequence([split(Regex(r"\s|\p{P}"), "merged_with_next"), bytes_only]), {}, True),
        "removed": (None, sequence([split(Regex(r"[\s\d]+"), "removed"), byte_level(prefix=True, use_regex=False)]), {}, True),
        "contiguous": (None, sequence([split(Regex(r"\p{Lu}|\p{M}"), "contiguous"), bytes_only]), {}, True),
        "inverted": (None, sequence([split(Regex(r"\p{L}+"), "merged_with_next", True), bytes_only]), {}, True),
        "empty_matches": (None, sequence([split(Regex(r"x*|(?=\p{Lu})"), "merged_with_previous"), bytes_only]), {}, True),
        "some_bytes": (None, byte_level(), {}, False),
        "unknown": (None, byte_level(), {"unk_token": "a"}, False),
    }


def add_tokens(tokenizer):
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", AddedToken("<|im_end|>", rstrip=True, special=True)])
    tokenizer.add_tokens(
        [
            AddedToken("<word>", single_word=True, normalized=False),
            AddedToken("<l>", lstrip=True, normalized=False),
            AddedToken("<r>", rstrip=True, normalized=True),
            AddedToken("ship", single_word=True, normalized=True),
            AddedToken("e\u0301", normalized=True),
            AddedToken("<|", lstrip=True, rstrip=True, normalized=True),
            AddedToken("  ", normalized=False),
        ]
    )


def train(documents_path, folder):
    texts = read_documents(documents_path)
    for name, (normalizer, pre_tokenizer, changes, all_bytes) in kinds().items():
        tokenizer = Tokenizer(models.BPE())
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet() if all_bytes else list("abcdefghijklmnopqrstuvwxyz'Ġ")
        trainer = trainers.BpeTrainer(
            vocab_size=1000, show_progress=False, initial_alphabet=alphabet, limit_alphabet=1000 if all_bytes else 60
        )
        tokenizer.train_from_iterator(texts, trainer)
        add_tokens(tokenizer)
        description = json.loads(tokenizer.to_str())
        description["model"].update(changes)
        if "ignore_merges" in changes:  # tokens that no merge makes any more
            del description["model"]["merges"][-200:]
        os.makedirs(f"{folder}/{name}")
        with open(f"{folder}/{name}/tokenizer.json", "w", encoding="utf-8") as out:
            json.dump(description, out, ensure_ascii=False)


def golden(tokenizer_path, documents_path, file):
    tokenizer = load(tokenizer_path)
    ids = [tokenizer.encode(document, add_special_tokens=False).ids for document in read_documents(documents_path)]
    with open(file, "w", encoding="utf-8") as out:
        json.dump(ids, out, separators=(",", ":"))
        out.write("\n")


def measure(tokenizer_path, documents_path):
    tokenizer = load(tokenizer_path)
    documents = read_documents(documents_path)
    for _ in sys.stdin:
        begin = time.process_time()
        count = sum(len(encoding.ids) for encoding in tokenizer.encode_batch_fast(documents, add_special_tokens=False))
        print(time.process_time() - begin, count, flush=True)


if __name__ == "__main__":
    commands = {
        "encode": encode,
        "train": train,
        "families": write_families,
        "llama": write_llama,
        "random": write_random,
        "all": encode_all,
        "forms": forms,
        "golden": golden,
        "time": measure,
    }
    commands[sys.argv[1]](*sys.argv[2:])
