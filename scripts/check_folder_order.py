#!/usr/bin/env python3
"""check_folder_order.py [ROOT]: enforces which folder of src/ may include what. Prints each offence as file:line; exits 1 if any.

A folder includes only itself and those before it in ORDER. LibTorch is compiled in few places because its headers are slow: the two
catch-all headers are banned outside examples and the module adapter, and in src/ all others outside LIBTORCH_ALLOWED.
"""

import pathlib
import re
import sys

ORDER = (
    "base layout schedule config comm kernels chain layers models optim engine data checkpoint monitor train measure launch planner cli"
).split()
CATCH_ALL = {"torch/torch.h", "torch/all.h", "ATen/ATen.h"}
CATCH_ALL_ALLOWED = re.compile(r"^(examples/|src/models/module[^/]*$)")
LIBTORCH_HEADER = re.compile(r"^(torch|ATen|c10|gloo)/")
LIBTORCH_ALLOWED = re.compile(r"^(src/(comm|kernels)/torch/|src/kernels/cuda/|src/models/module[^/]*$)")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}


def offences_of_include(path, quoted, header):
    """Yields what is wrong with `path` (relative to the root, with slashes) including `header`."""
    parts = path.split("/")
    if header in CATCH_ALL and not CATCH_ALL_ALLOWED.match(path):
        yield f"{header} costs 20 s a file and is banned: include ATen/core/Tensor.h and ATen/ops/NAME.h"
    elif parts[0] == "src" and LIBTORCH_HEADER.match(header) and not LIBTORCH_ALLOWED.match(path):
        yield f"{header}: LibTorch may be included only in what libtrireme_torch.so is made of: src/comm/torch and src/kernels/torch"
    if not quoted or parts[0] != "src" or len(parts) < 3 or parts[1] not in ORDER:
        return
    own, folder = parts[1], header.split("/")[0]
    if folder not in ORDER:
        yield f'"{header}" is not below src/: write "folder/file.h", or <...> for a library'
    elif ORDER.index(folder) > ORDER.index(own):
        yield f'"{header}": {own} comes before {folder} and must not know it'


def offences(root):
    for area in ("src", "tests", "bench", "include"):
        for file in sorted((root / area).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            path = file.relative_to(root).as_posix()
            if path.startswith("src/") and path.count("/") > 1 and path.split("/")[1] not in ORDER:
                yield f"{path}:1: src/{path.split('/')[1]} is not in the order of folders"
                continue
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                if match:
                    for offence in offences_of_include(path, match[1] == '"', match[2]):
                        yield f"{path}:{number}: {offence}"


def main(arguments):
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent
    found = list(offences(root))
    for offence in found:
        print(offence)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
