"""Which settings a peer is fastest with on a row: all of a grid, each run for a few steps."""

import itertools
import time

# By the beginning of a peer's words: its own settings. "...-autotune": with max-autotune-no-cudagraphs.
GRID = {
    "torch_peer.py --mode ddp": {"compile": ("block", "model", "block-autotune", "model-autotune")},
    "torch_peer.py --mode fsdp2": {"compile": ("block", "model", "block-autotune"), "reshard": ("yes", "no")},
    "deepspeed_peer.py --zero 3": {"compile": ("block", "engine", "none")},
}


def sizes(micro_batch, accumulate):
    """(micro-batch, accumulation) of the same tokens a step, the row's own first, then the larger micro-batches."""
    total = micro_batch * accumulate
    pairs = [(size, total // size) for size in range(total, 0, -1) if total % size == 0]
    return sorted(pairs, key=lambda pair: pair != (micro_batch, accumulate))


def candidates(row, compile_modes=None):
    """Words of peers as a row has them, for the kinds of peers that this one has."""
    for base, settings in GRID.items():
        own = next((words for words in row.peers if words.startswith(base)), None)
        if own is None:
            continue
        states = ("--states", "bf16") if "--states bf16" in own else ()
        modes = compile_modes or settings["compile"]
        reshards = settings.get("reshard", ("yes",)) if row.gpus > 1 else ("yes",)  # alone, nothing is resharded
        for (micro_batch, accumulate), mode, reshard in itertools.product(sizes(row.micro_batch, row.accumulate), modes, reshards):
            words = [base, "--compile", mode, *(("--reshard", reshard) if "reshard" in settings else ()),
                     *states, "--micro-batch", str(micro_batch), "--accumulate", str(accumulate)]
            yield " ".join(words)


def tune(row, run, compile_modes=None, seconds=float("inf"), say=print):
    """The two fastest, and what became of every one; run(words) returns a peer's row or raises RuntimeError. After so many seconds no
    more begin."""
    tried, end = [], time.monotonic() + seconds
    for words in candidates(row, compile_modes):
        if time.monotonic() > end:
            tried.append({"peer": words, "failure": f"not tried: {seconds:g} s were over"})
            continue
        try:
            found = run(words)
            tried.append({"peer": words, "tokens_per_s_per_gpu": found["tokens_per_s_per_gpu"], "system": found["system"]})
        except RuntimeError as error:
            tried.append({"peer": words, "failure": str(error), "out_of_memory": str(error).startswith("out of memory")})
        say(words, tried[-1].get("tokens_per_s_per_gpu", "failed"))
    ran = sorted((one for one in tried if "failure" not in one), key=lambda one: -one["tokens_per_s_per_gpu"])
    return {"best": [one["peer"] for one in ran[:2]], "tried": tried}
