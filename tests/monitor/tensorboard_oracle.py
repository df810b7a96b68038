"""What TensorBoard's own reader makes of event files.

    tensorboard_oracle.py equal RUN...     each run's tensorboard/ holds the curves of its metrics.jsonl
    tensorboard_oracle.py follow FOLDER    reads again and again, prints how many losses it has, until FOLDER/done is there

Exits 77 without TensorBoard, 1 where something differs."""

import json
import math
import pathlib
import struct
import sys
import time

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    sys.exit(77)

STEP_TAGS = {
    "train/loss": "loss",
    "train/learning_rate": "lr",
    "train/grad_norm": "grad_norm",
    "train/grad_norm_clipped": "grad_norm_clipped",
    "train/loss_scale": "loss_scale",
    "train/epoch": "epoch",
    "speed/tokens_per_s": "tokens_per_s",
    "speed/step_seconds": "step_seconds",
    "speed/data_wait_seconds": "data_wait_seconds",
    "system/memory_bytes": "memory_bytes",
}
EVENT_TAGS = {
    ("eval", "loss"): "eval/loss",
    ("eval", "bits_per_byte"): "eval/bits_per_byte",
    ("epoch", "loss"): "train/epoch_loss",
}


def as_float32(value):
    return float("nan") if value is None else struct.unpack("<f", struct.pack("<f", value))[0]


def curves_of_jsonl(path):
    curves = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if "event" in record:
            for (event, key), tag in EVENT_TAGS.items():
                if record["event"] == event and key in record:
                    curves.setdefault(tag, {})[record["step"]] = as_float32(record[key])
        else:
            for tag, key in STEP_TAGS.items():
                curves.setdefault(tag, {})[record["step"]] = as_float32(record[key])
    return {tag: sorted(curve.items()) for tag, curve in curves.items()}


def reader(folder):
    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})


def curves_of_tensorboard(accumulator):
    return {
        tag: [(point.step, point.value) for point in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]
    }


def same(a, b):
    return len(a) == len(b) and all(
        s == t and (x == y or (math.isnan(x) and math.isnan(y))) for (s, x), (t, y) in zip(a, b)
    )


def check_equal(run):
    run = pathlib.Path(run)
    wanted = curves_of_jsonl(run / "metrics.jsonl")
    accumulator = reader(run / "tensorboard")
    accumulator.Reload()
    found = curves_of_tensorboard(accumulator)
    wrong = [tag for tag in wanted.keys() | found.keys() if not same(wanted.get(tag, []), found.get(tag, []))]
    for tag in wrong:
        print(f"{run}: {tag}: metrics.jsonl {wanted.get(tag)}, TensorBoard {found.get(tag)}")
    texts = accumulator.Tensors("plan/text_summary")
    if not texts[-1].tensor_proto.string_val[0].decode().startswith("    "):
        wrong.append("the plan's text")
    print(f"{run}: {len(found)} curves, {sum(map(len, found.values()))} points")
    return not wrong


def follow(folder):
    folder = pathlib.Path(folder)
    accumulator = reader(folder)
    done = False
    while not done:
        done = (folder / "done").exists()
        if any(folder.iterdir()):
            accumulator.Reload()
        has_losses = "train/loss" in accumulator.Tags()["scalars"]
        print(len(accumulator.Scalars("train/loss")) if has_losses else 0, flush=True)
        time.sleep(0.005)
    return True


if __name__ == "__main__":
    command, arguments = sys.argv[1], sys.argv[2:]
    ok = follow(arguments[0]) if command == "follow" else all([check_equal(run) for run in arguments])
    sys.exit(0 if ok else 1)
