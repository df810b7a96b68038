"""What the scripts that ask another tool share: goldens are written, compared with a live run, and drawn afresh.

  write SOURCE OUTPUT         writes the goldens
  check SOURCE GOLDENS        compares them with a live run
  draw SOURCE OUTPUT SEED N   writes N fresh lines

SOURCE is the unpacked source of DeepSpeed 0.19.6 (scripts/setup.sh --tests: .deps/oracle/source). Exit code 77 where it cannot run.
"""
import importlib.util
import os
import random
import sys

import oracle

NEEDED = ("torch", "pydantic", "hjson", "accelerate", "transformers")


def run(load, answer, cases, fresh):
    """load(SOURCE) makes the tool, answer(tool, case) what it makes of a case; both cases are dictionaries that are written side by
    side. cases() has those of the goldens, fresh(random.Random) draws one."""
    action, source, file, *more = sys.argv[1:]
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing or not os.path.isdir(os.path.join(source, "deepspeed")):
        print(f"skipped: there is no {', '.join(missing) or source}")
        return 77
    tool = load(source)
    text = "\n".join(oracle.lines(_drawn(action, cases, fresh, more), lambda case: answer(tool, case))) + "\n"
    return oracle.check(file, text) if action == "check" else oracle.write(file, text)


def _drawn(action, cases, fresh, more):
    if action != "draw":
        return cases()
    seed, count = more
    generator = random.Random(seed)
    return (fresh(generator) for _ in range(int(count)))
