#!/usr/bin/env bash
# Trains a small Llama on the novels of Jane Austen with two processes, lets it write a passage, and compares it with two baselines.
# A second run keeps the text and its tokens and trains anew. Expects build/trireme: run it by `make quickstart`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly CONFIG=configs/quickstart.yaml
readonly RUN=runs/quickstart       # output_dir of the configuration
readonly TOKENS=$RUN/data          # its data.path
readonly TEXT=data/quickstart/austen.jsonl
readonly PACKAGE=r-cran-janeaustenr  # the novels are in the public domain
readonly PROMPT='It was a truth universally acknowledged, that '

cannot_go_on() {
  printf 'quickstart: cannot go on: %s\n' "$*" >&2
  exit 3
}

heading() { printf '\n== %s\n' "$*"; }

download_package() {
  apt-get download -q "$PACKAGE" && return
  # The lists of a fresh machine may be empty or too old.
  [[ $(id -u) == 0 ]] && apt-get update -q && apt-get download -q "$PACKAGE"
}

prepare_text() {
  if [[ -f $TEXT ]]; then
    printf '%s is there already\n' "$TEXT"
    return
  fi
  local work
  work=$(mktemp -d)
  # shellcheck disable=SC2064  # the name is local
  trap "rm -rf '$work'" EXIT
  mkdir -p "$(dirname "$TEXT")"
  (cd "$work" && download_package) >"$work/log" 2>&1 ||
    cannot_go_on "the Debian package $PACKAGE could not be downloaded: $(grep '^E:' "$work/log" | tail -n 1): check the network, and run 'apt-get update' as root"
  dpkg-deb -x "$work/$PACKAGE"_*.deb "$work/package" || cannot_go_on "$PACKAGE could not be unpacked in $work: is the disk full?"
  "${TRIREME_PYTHON:-/usr/bin/python3}" scripts/janeausten_text.py "$work/package" "$TEXT"
}

# bf16 where the processor multiplies it directly, else fp32.
precision() {
  grep -qwE 'amx_bf16|avx512_bf16' /proc/cpuinfo && echo bf16 || echo no
}

# Everything of an earlier run but its tokens.
clear_run() {
  [[ -d $RUN ]] && find "$RUN" -mindepth 1 -maxdepth 1 ! -name "$(basename "$TOKENS")" -exec rm -rf {} +
  mkdir -p "$RUN"
}

heading "Text"
prepare_text
build/trireme data prepare "$TEXT" --output "$TOKENS" --tokenizer bytes --held-out 0.05

heading "Training: two processes, one thread each (mixed_precision: $(precision))"
clear_run
build/trireme launch --nproc-per-node 2 train "$CONFIG" "training.mixed_precision=$(precision)"

heading "What it writes"
build/trireme generate --checkpoint "$RUN" --prompt "$PROMPT" --max-tokens 300 --temperature 0.8 --top-p 0.95 --seed 1

heading "Bits per byte of the held-out text"
build/trireme_text_baselines "$RUN" --check
