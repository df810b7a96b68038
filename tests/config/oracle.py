"""What the scripts that ask another tool's own code share: goldens written and checked, and random samples.

  SCRIPT write GOLDENS        writes the goldens
  SCRIPT check GOLDENS        compares them with a live run
  SCRIPT sample SEED FILE     writes what becomes of random configurations, for the same comparison with ours

The exit code is 77 where the tool is missing. One line of goldens is one configuration in JSON: "about", "config", and its
outcome: "accepted", and, where it is, "values" by names that the comparison in C++ knows.
"""
import itertools
import json
import random
import sys

SAMPLE = 2000


def lines(cases, outcome):
    for case in cases:
        yield json.dumps({**case, **outcome(case)})


def write(file, text):
    with open(file, "w", encoding="utf-8") as output:
        output.write(text)
    return 0


def check(file, text):
    with open(file, encoding="utf-8") as goldens:
        old = goldens.read().splitlines()
    changed = [pair for pair in itertools.zip_longest(old, text.splitlines()) if pair[0] != pair[1]]
    for before, now in changed:
        print(f"golden: {before}\nnow:    {now}")
    print(f"{len(old)} configurations, {len(changed)} differ")
    return 1 if changed else 0


def run(load, cases, random_case):
    """load() gives the function from a case to its outcome, or raises ImportError; random_case(generator) a case."""
    action, *rest = sys.argv[1:]
    try:
        outcome = load()
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    if action == "sample":
        seed, file = rest
        generator = random.Random(int(seed))
        sample = (random_case(generator) for _ in range(SAMPLE))
        return write(file, "\n".join(lines(sample, outcome)) + "\n")
    text = "\n".join(lines(cases(), outcome)) + "\n"
    return {"write": write, "check": check}[action](rest[0], text)
