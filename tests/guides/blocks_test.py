"""Every configuration that the guides print trains, as it is printed, a few steps of a tiny model.

A part of a file is put into the whole file of its page. Batch equations decide the number of ranks; all others run on
two, and on two ranks a batch that has no solution there is refused with its equation.

usage: blocks_test.py SOURCE_DIR BINARY_DIR [PAGE:LINE ...]; skips (77) without the guides.
"""
import ast
import json
import math
import os
import re
import sys
import tempfile
from dataclasses import dataclass, field

import guides
from sandbox import SETTINGS, STEPS, Sandbox

DEFAULT_RANKS = 2


@dataclass
class Case:
    """One listing with what it needs around it: the text of run.yaml, and other files by name."""
    name: str
    yaml: str
    files: dict = field(default_factory=dict)
    arguments: str = ""
    batch: dict = field(default_factory=dict)  # the keys of a batch equation

    def ranks(self):
        keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
        if not all(isinstance(self.batch.get(key), int) for key in keys):
            return DEFAULT_RANKS
        train, micro, accumulation = (self.batch[key] for key in keys)
        return train // micro // accumulation


def merged(whole, part):
    """The object with the entries of part in their places."""
    if not isinstance(whole, dict) or not isinstance(part, dict):
        return part
    return {**whole, **{key: merged(whole.get(key), value) for key, value in part.items()}}


def constants_of(text):
    """{name: value} of Python that only assigns constants, or {}."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return {}
    if not all(isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant) for each in body):
        return {}
    return {each.targets[0].id: each.value.value for each in body}


def dictionaries_of(text):
    """The literal dictionaries that are assigned to `config`."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    return [ast.literal_eval(each.value) for each in ast.walk(tree)
            if isinstance(each, ast.Assign) and isinstance(each.value, ast.Dict) and each.targets[0].id == "config"]


def object_of(text):
    """A JSON object, or the entries of one, with comments of #."""
    text = re.sub(r"(?m)^\s*#.*$", "", text).strip()
    return json.loads(text if text.startswith("{") else "{" + text + "}")


class Page:
    """The listings of one guide, and its whole files: the first of each kind."""

    def __init__(self, name, lines):
        self.name = name
        self.blocks = guides.blocks(name, lines)
        whole = [block for block in self.blocks if block.language == "json" and block.text.startswith("{")]
        self.deepspeed = next((block.text for block in whole if "zero_optimization" in block.text), None)
        self.fsdp = next((block.text for block in whole if "fsdp_" in block.text), None)
        texts = [block.text for block in self.blocks if block.language == "yaml"]
        self.yaml = next((text for text in texts if text.startswith("distributed:")), "")
        training = [text for text in texts if text.startswith("training:") and text.count(":") > 4]
        self.yaml += "".join("\n" + text for text in training[:1])

    def files(self, yaml, deepspeed=None):
        """What the configuration names, as this page prints it."""
        found = {}
        for key, text in (("deepspeed_config", deepspeed or self.deepspeed), ("fsdp_config", self.fsdp)):
            path = re.search(rf"\b{key}: \"?([^\"\s]+)", yaml)
            if path:
                found[path.group(1)] = text
        return found

    def put_into_whole(self, part):
        """The page's configuration with the lines of part in the places of its keys."""
        lines, block = self.yaml.split("\n"), "distributed:"
        for line in part.split("\n"):
            key = re.match(r"\s*(\w+):(.*)", line)
            if not key:
                continue
            if line.endswith(":"):
                block = line
                continue
            same = [at for at, old in enumerate(lines) if re.match(rf"\s+{key.group(1)}:", old)]
            if same:
                lines[same[0]] = f"  {line.strip()}"
            elif block in lines:
                lines.insert(lines.index(block) + 1, f"  {line.strip()}")
            else:
                lines += [block, f"  {line.strip()}"]
        return "\n".join(lines)

    def case_of(self, block):
        """[Case] of one listing; none where it configures nothing."""
        name = f"{self.name}:{block.line}"
        if block.language == "yaml":
            yaml = block.text if re.search(r"\b(deepspeed|fsdp)_config:", block.text) else self.put_into_whole(block.text)
            return [Case(name, yaml, self.files(yaml))]
        if block.language == "json" and "fsdp_" in block.text:
            return [Case(name, "", {"fsdp.json": block.text}, "--fsdp_config fsdp.json")]
        if block.language == "json" or '"zero_optimization": {' in block.text:
            content = object_of(block.text)
            text = block.text if block.text.startswith("{") else json.dumps(merged(object_of(self.deepspeed), content))
            batch = content if block.text.startswith("{") else object_of(text)
            return [Case(name, "", {"ds.json": text}, "--deepspeed ds.json", batch)]
        if block.language != "python":
            return []
        constants = constants_of(block.text)
        if constants:
            return [Case(name, "training:\n" + "".join(f"  {key}: {value}\n" for key, value in constants.items()))]
        return [Case(name, json.dumps(flat, indent=1), batch=flat) for flat in dictionaries_of(block.text)]


def cases(source):
    return [case for name, lines in guides.pages(source) for page in [Page(name, lines)] for block in page.blocks
            for case in page.case_of(block)]


def launch(case, sandbox, folder, ranks):
    settings = " ".join([*SETTINGS, "data.path=../tokens", "output_dir=out"])
    return sandbox.run(f"trireme launch --nproc-per-node {ranks} train run.yaml {case.arguments} {settings}", folder)


def check_run(folder, result):
    """What is wrong with a run that should have trained; "" where nothing is."""
    if result.returncode != 0:
        return f"exit code {result.returncode}: {result.stdout.strip()[-700:]}"
    with open(os.path.join(folder, "out", "metrics.jsonl"), encoding="utf-8") as file:
        losses = [record["loss"] for record in map(json.loads, file) if "event" not in record]
    if len(losses) != STEPS or not all(isinstance(loss, float) and math.isfinite(loss) for loss in losses):
        return f"losses: {losses}"
    if not os.path.exists(os.path.join(folder, "out", "checkpoints", f"step-{STEPS:08}", "manifest.json")):
        return "no checkpoint"
    return ""


def check_refusal(case, result):
    """On another number of ranks the equation is told: its three factors, the ranks, and what would be valid."""
    numbers = [str(case.batch[key]) for key in ("train_batch_size", "train_micro_batch_size_per_gpu",
                                                "gradient_accumulation_steps")] + [str(DEFAULT_RANKS)]
    missing = [number for number in numbers if not re.search(rf"\b{number}\b", result.stdout)]
    nearest = case.batch["train_micro_batch_size_per_gpu"] * case.batch["gradient_accumulation_steps"] * DEFAULT_RANKS
    if result.returncode != 2 or missing or not re.search(rf"\b{nearest}\b", result.stdout):
        return f"on {DEFAULT_RANKS} ranks: exit code {result.returncode}, without {missing} or {nearest}: {result.stdout[-700:]}"
    return ""


def check(case, sandbox):
    folder = re.sub(r"[^\w]", "-", case.name)
    sandbox.write(os.path.join(folder, "run.yaml"), case.yaml)
    for name, text in case.files.items():
        sandbox.write(os.path.join(folder, name), text)
    if case.ranks() != DEFAULT_RANKS:
        problem = check_refusal(case, launch(case, sandbox, folder, DEFAULT_RANKS))
        if problem:
            return problem
    return check_run(os.path.join(sandbox.folder, folder), launch(case, sandbox, folder, case.ranks()))


def main(source, binary, *only):
    every = cases(source)
    assert len(every) >= 32, f"only {len(every)} configurations found"
    # Two are printed with the equation, and a part of a file is put into one of them.
    assert [case.ranks() for case in every].count(4) == 3, "batch equations of four ranks"
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Sandbox(folder, binary)
        for case in every:
            if only and not any(case.name.startswith(name) for name in only):
                continue
            problem = check(case, sandbox)
            failed += problem != ""
            print(f"{case.name} on {case.ranks()} ranks: {problem or 'trains'}", flush=True)
    print(f"{len(every)} configurations, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
