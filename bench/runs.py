"""Runs of `trireme train` that are compared with each other: their losses, and what their checkpoints hold."""

import hashlib
import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


class Failed(Exception):
    """A check's words, where it did not pass."""


def script(name):
    """A script of this folder as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(HERE / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def checked(command, timeout):
    """What the command says."""
    try:
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
                              check=False)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"took longer than {timeout} s") from error
    if done.returncode != 0:
        raise Failed(f"exit code {done.returncode}: {done.stdout[-500:]}")
    return done.stdout


def prepare_docs(trireme, folder, timeout):
    """This project's docs as training data in folder/data."""
    texts = [page.read_text(encoding="utf-8") for page in sorted((HERE.parent / "docs").glob("*.md"))]
    (folder / "text.txt").write_text("\n".join(texts), encoding="utf-8")
    checked([trireme, "data", "prepare", folder / "text.txt", "--output", folder / "data"], timeout)


def losses(folder):
    """{step: loss} of a run; a run that resumes drops what it had told of later steps."""
    found = {}
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:  # the line that was being written when the process was killed
            continue
        if "event" not in record:
            found[record["step"]] = record["loss"]
    return found


def checkpoint(folder, step):
    return folder / f"checkpoints/step-{step:08}"


def contents(folder, step):
    """What the data files of a run's checkpoint hold: weights, moments and all."""
    files = list(checkpoint(folder, step).glob("*.safetensors"))
    if not files:
        raise Failed(f"no checkpoint of step {step}")
    return sorted(digest(file) for file in files)


def digest(file):
    """Of a safetensors file's tensors: their names, types and shapes, and their bytes, but not which attempt of which run wrote them."""
    with open(file, "rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
        header.pop("__metadata__", None)
        total = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
        while part := opened.read(1 << 24):
            total.update(part)
    return total.hexdigest()


def run_checks(checks, needs, subject):
    """The results of {name: check}; prints a line for each. check(subject) returns words and figures, or raises Failed; what needs one
    that failed has failed."""
    passed = set()
    for name, check in checks.items():
        words, figures = "", {}
        try:
            if name in needs and needs[name] not in passed:
                raise Failed(f"not tried, for want of '{needs[name]}'")
            words, figures = check(subject)
            passed.add(name)
        except Failed as error:
            words = str(error)
        print("PASS" if name in passed else "FAIL", f"{name}: {words}", flush=True)
        yield {"check": name, "passed": name in passed, "words": words, **figures}
