#!/usr/bin/env python3
"""run.py TOKENIZERS [ROUNDS]: single-thread encoding speed beside the Python package tokenizers; writes bench/results/tokenizer.json.

TOKENIZERS is a folder with gpt2/ (vocab.json, merges.txt) and qwen2.5/ (tokenizer.json). A Llama-2 style tokenizer (no splitting into
words, byte fallback) of 16,000 tokens is trained on the texts. Texts: the quickstart's English, where it is
there, and 5 MB of the tests' varied text. The programs take turns, one pass over all documents each; CPU seconds of the process, so
that other work on the machine counts little. The package is timed by its fastest way on one thread, encode_batch_fast.
"""

import datetime
import json
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULT = ROOT / "bench/results/tokenizer.json"
ENGLISH = ROOT / "data/quickstart/austen.jsonl"
BUILD = pathlib.Path(os.environ.get("TRIREME_BUILD", ROOT / "build"))
OURS = BUILD / "bench/tokenizer/trireme_tokenizer_bench"
PYTHON = ROOT / ".deps/oracle/bin/python"
ORACLE = ROOT / "tests/tokenizer/oracle.py"


def write_texts(folder):
    texts = {"varied": folder / "varied"}
    subprocess.run([OURS, "documents", "20250101", "5200000", texts["varied"]], check=True)
    if ENGLISH.exists():
        texts["English"] = folder / "english"
        with open(texts["English"], "wb") as out:
            for line in open(ENGLISH, encoding="utf-8"):
                document = json.loads(line)["text"].encode()
                out.write(struct.pack("<I", len(document)) + document)
    return texts


def start(command):
    return subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def one_pass(process):
    process.stdin.write("\n")
    process.stdin.flush()
    seconds, count = process.stdout.readline().split()
    return float(seconds), int(count)


def row(name, tokenizer, text, file, rounds):
    megabytes = file.stat().st_size / 1e6
    ours, theirs = start([OURS, "time", tokenizer, file]), start([PYTHON, ORACLE, "time", tokenizer, file])
    counts = [one_pass(ours)[1], one_pass(theirs)[1]]  # warm
    if counts[0] != counts[1]:
        sys.exit(f"{name}, {text}: {counts[0]} ids here, {counts[1]} there")
    passes = [(megabytes / one_pass(ours)[0], megabytes / one_pass(theirs)[0]) for _ in range(rounds)]
    for process in (ours, theirs):
        process.stdin.close()
        process.wait()
    speeds = [[pair[i] for pair in passes] for i in range(2)]
    spread = ["{:.1f} .. {:.1f}".format(min(speed), max(speed)) for speed in speeds]
    median = [statistics.median(speed) for speed in speeds]
    return {
        "tokenizer": name,
        "text": f"{text}, {megabytes:.1f} MB",
        "ids": counts[0],
        "trireme MB/s": round(median[0], 1),
        "trireme, all": spread[0],
        "tokenizers MB/s": round(median[1], 2),
        "tokenizers, all": spread[1],
        "ratio": round(statistics.median(a / b for a, b in passes), 1),
        "promised": ">= 1",
    }


def main():
    tokenizers = pathlib.Path(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    version = subprocess.run([PYTHON, "-c", "import tokenizers; print(tokenizers.__version__)"], capture_output=True, text=True).stdout
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        texts = write_texts(pathlib.Path(folder))
        training = pathlib.Path(folder) / "training"
        training.write_bytes(b"".join(file.read_bytes() for file in texts.values()))
        subprocess.run([PYTHON, ORACLE, "llama", "16000", training, pathlib.Path(folder) / "llama"], check=True)
        llama = pathlib.Path(folder) / "llama/llama2/tokenizer.json"
        for text, file in texts.items():
            for name, place in (
                ("GPT-2", tokenizers / "gpt2"),
                ("Qwen2.5", tokenizers / "qwen2.5/tokenizer.json"),
                ("Llama-2 style", llama),
            ):
                rows.append(row(name, place, text, file, rounds))
                print(rows[-1], flush=True)
    record = {
        "bench": f"Tokenizer, one thread, beside Python tokenizers {version.strip()}",
        "command": "bench/tokenizer/run.py TOKENIZERS",
        "note": f"CPU time, median and extremes of {rounds} passes that take turns, the first not counted.",
        "machine": {
            "processor": re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())[1],
            "cores": len(os.sched_getaffinity(0)),
            "compiler": subprocess.run(["g++", "--version"], capture_output=True, text=True).stdout.splitlines()[0],
            "commit": subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT).stdout.strip(),
            "date": datetime.date.today().isoformat(),
        },
        "rows": rows,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
