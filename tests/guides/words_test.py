"""Every command, flag, variable, key and call of the guides has a row in docs/coming-from.md, and rows are true: what
is quoted under "works" is run, what is quoted under "later" is refused.

usage: words_test.py SOURCE_DIR BINARY_DIR; skips (77) without the guides.
"""
import json
import os
import re
import sys
import tempfile

import guides
from sandbox import Sandbox

STATES = ("works", "by itself", "no effect", "refused", "later", "yours")
SETTING = re.compile(r"[a-z_]+(\.[a-z_0-9]+)+=.+")
COMMAND = re.compile(r"([A-Z_]+=\S+ )*trireme .+")
TRAINS = re.compile(r"\btrain\b")


def rows(source):
    """[(line, words of the first column, quoted words of the second, state)] of the tables of three columns."""
    result = []
    with open(os.path.join(source, "docs", "coming-from.md"), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if line.startswith("| `") and len(cells) == 3:
                result.append((number, re.findall(r"`([^`]+)`", cells[0]), re.findall(r"`([^`]+)`", cells[1]), cells[2]))
    return result


def check_mapping(source, table):
    problems, row_of = [], {}
    for number, words, _, state in table:
        if state not in STATES:
            problems.append(f"coming-from.md:{number}: no such state: {state}")
        for word in words:
            if word in row_of:
                problems.append(f"coming-from.md:{number}: {word} has a row already, {row_of[word]}")
            row_of[word] = number
    found = list(guides.items(source))
    for item in found:
        if item.text not in row_of:
            problems.append(f"{item.page}:{item.line}: the {item.kind} {item.text} has no row in docs/coming-from.md")
    named = {item.text for item in found}
    print(f"{len(found)} places, {len(named)} words, {len(table)} rows")
    assert len(found) > 600, "the guides have more than that"
    return problems


def command_of(quoted):
    """What to run for a quoted word; nothing where it is neither a command of ours nor a setting."""
    if SETTING.fullmatch(quoted):
        return f"trireme train run.yaml '{quoted}' --dry-run"
    if not COMMAND.fullmatch(quoted):
        return None
    return quoted + " --dry-run" if TRAINS.search(quoted) and "--dry-run" not in quoted else quoted


def judge(state, result):
    if state in ("later", "refused"):
        return result.returncode == 2 and "error TR" in result.stdout
    if state == "no effect":
        return result.returncode == 0 and "no effect" in result.stdout
    return result.returncode == 0


def check_commands(table, sandbox):
    problems, runs = [], 0
    for number, _, quoted, state in table:
        commands = [command for command in map(command_of, quoted) if command]
        if state == "works" and not commands:
            problems.append(f"coming-from.md:{number}: works, but nothing there can be run")
        for command in commands:
            result = sandbox.run(command)
            runs += 1
            if not judge(state, result):
                problems.append(f"coming-from.md:{number}: {state}: $ {command}\n  exit code {result.returncode}: "
                                + result.stdout.strip()[-600:])
    print(f"{runs} commands run")
    return problems


def byte_vocabulary():
    """GPT-2's letters for the 256 bytes: themselves where they print, else those from 256 on."""
    prints = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in prints]
    letters = {**{byte: chr(byte) for byte in prints}, **{byte: chr(256 + n) for n, byte in enumerate(others)}}
    return {**{letters[byte]: byte for byte in range(256)}, "<|endoftext|>": 256}


def main(source, binary):
    table = rows(source)
    problems = check_mapping(source, table)
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Sandbox(folder, binary)
        sandbox.write("my-tokenizer/vocab.json", json.dumps(byte_vocabulary()))
        sandbox.write("my-tokenizer/merges.txt", "#version: 0.2\n")
        sandbox.write("accelerate.yaml", "distributed_type: MULTI_CPU\nmixed_precision: bf16\n")
        sandbox.must("trireme setup deepspeed --output ds_config.json")
        sandbox.must("trireme setup fsdp --output fsdp_config.json")
        sandbox.must("trireme train run.yaml")
        sandbox.must("trireme convert runs/run hf-model")
        problems += check_commands(table, sandbox)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
