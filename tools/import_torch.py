#!/usr/bin/env python3
"""import_torch.py SOURCE OUTPUT: a model folder whose weights are pytorch_model.bin (a pickle) as one with model.safetensors.

Trireme never unpickles. This script does, in a process of its own, with torch's loader restricted to weights (weights_only=True: tensors
and plain containers, no code). Needs torch and safetensors. OUTPUT must not exist; it appears whole or not at all.
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile

SINGLE, INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


def pickles_of(source):
    if (source / SINGLE).is_file():
        return [SINGLE]
    if not (source / INDEX).is_file():
        sys.exit(f"import_torch.py: {source} has neither {SINGLE} nor {INDEX}")
    names = sorted(set(json.loads((source / INDEX).read_text())["weight_map"].values()))
    for name in names:
        if pathlib.PurePath(name).name != name or not (source / name).is_file():
            sys.exit(f"import_torch.py: {source / INDEX} names {name!r}, which is no file of the folder")
    return names


def load(path):
    import torch

    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a hostile pickle makes of it
        sys.exit(f"import_torch.py: {path} was refused: {str(error).splitlines()[0]}")
    if not isinstance(tensors, dict) or not all(isinstance(value, torch.Tensor) for value in tensors.values()):
        sys.exit(f"import_torch.py: {path} is no dictionary of tensors")
    return {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}  # clone: no shared storage


def convert(source, output):
    from safetensors.torch import save_file

    names = pickles_of(source)
    output.mkdir(exist_ok=True)
    weight_map, total = {}, 0
    for i, name in enumerate(names):
        target = "model.safetensors" if len(names) == 1 else f"model-{i + 1:05}-of-{len(names):05}.safetensors"
        tensors = load(source / name)
        save_file(tensors, output / target, metadata={"format": "pt"})
        os.chmod(output / target, 0o644)
        weight_map.update(dict.fromkeys(tensors, target))
        total += sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if len(names) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (output / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    for file in source.iterdir():
        if file.is_file() and file.suffix in {".json", ".txt", ".model", ".jinja"} and file.name != INDEX:
            shutil.copyfile(file, output / file.name)


def main(arguments):
    if len(arguments) != 2:
        sys.exit(__doc__)
    source, output = map(pathlib.Path, arguments)
    if output.exists():
        sys.exit(f"import_torch.py: {output} exists already")
    output.absolute().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.absolute().parent, prefix=".import-") as work:
        convert(source, pathlib.Path(work) / "model")
        os.rename(pathlib.Path(work) / "model", output)
    print(f"{output}: written; check config.json and train from it with model.path={output}")


if __name__ == "__main__":
    main(sys.argv[1:])
