"""Runs the README's commands on a text of your own, as written (a few training steps are enough here).

usage: readme_commands_test.py SOURCE_DIR BINARY_DIR. `make quickstart` and `make test` are run by .ci/run itself.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile

HEADING = "## Train on your own text"
STEPS = "training.max_steps=5"


def commands(readme):
    """The indented commands of the section, continuation lines joined."""
    section = readme.split(HEADING, 1)[1].split("\n## ", 1)[0]
    code = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    "))
    return [line for line in code.replace("\\\n", " ").splitlines() if line.startswith("build/trireme")]


def make_folder(folder, source, binary):
    os.symlink(binary, os.path.join(folder, "build"))
    os.symlink(os.path.join(source, "configs"), os.path.join(folder, "configs"))
    os.mkdir(os.path.join(folder, "my-text"))
    for part in range(4):
        with open(os.path.join(folder, "my-text", f"{part}.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"Line {line} of text {part}, which says little.\n" for line in range(400))


def main(source, binary):
    with open(os.path.join(source, "README.md"), encoding="utf-8") as file:
        found = commands(file.read())
    kinds = {re.sub(r"^build/trireme (\w+).*", r"\1", command) for command in found}
    assert {"data", "launch", "plan", "generate", "convert"} <= kinds, f"the section shows only {sorted(kinds)}"
    with tempfile.TemporaryDirectory() as folder:
        make_folder(folder, source, binary)
        for command in found:
            words = shlex.split(command)
            if "train" in words:
                words.append(STEPS)
            print("$", " ".join(words), flush=True)
            subprocess.run(words, cwd=folder, check=True, timeout=120)
        manifests = [name for _, _, names in os.walk(os.path.join(folder, "runs")) for name in names if name == "manifest.json"]
        assert manifests, "no checkpoint was written"


if __name__ == "__main__":
    main(*sys.argv[1:])
