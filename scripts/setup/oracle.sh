# shellcheck shell=bash
# .deps/oracle: a Python environment for the tests alone. It has Hugging Face's tokenizers and safetensors, a small pretrained model and, where
# the system's Python is 3.11 (the wheels'), torch on LibTorch's own CPU libraries, so also transformers, and
# `python -m torch.distributed.run`: the real torchrun. In its folder source/ lies DeepSpeed's source, whose configuration classes run as they
# are.

oracle_is_complete() {
  [[ -x $DEPS/oracle/bin/python ]] && is_unpacked "$ROOT/scripts/setup/wheels-tests.txt" "$DEPS/oracle" &&
    is_unpacked "$ROOT/scripts/setup/sources-tests.txt" "$DEPS/oracle/source" && cmp -s "$ROOT/scripts/setup/wheels.txt" "$DEPS/oracle/.torch"
}

# The wheel's torch imports CUDA libraries of several GB. No test calls into them, so its folder is mirrored by links, and stand-ins
# that only satisfy the dynamic linker take the place of the CUDA part.
link_torch() {
  local packages=$1 site=../../../../site entry
  mkdir -p "$packages/torch/lib"
  for entry in "$DEPS"/site/torch/*; do
    entry=$(basename "$entry")
    [[ $entry == lib ]] || ln -s "../$site/torch/$entry" "$packages/torch/$entry"
  done
  for entry in "$DEPS"/site/torch/lib/*; do
    entry=$(basename "$entry")
    [[ $entry == *cuda.so ]] || ln -s "../../$site/torch/lib/$entry" "$packages/torch/lib/$entry"
  done
  for entry in torchgen functorch nvidia "$(basename "$DEPS"/site/torch-*.dist-info)"; do
    ln -s "$site/$entry" "$packages/$entry"
  done
  logged "$ROOT/scripts/setup/cuda_stand_in.sh" "$DEPS/site/torch/lib" "$packages/torch/lib"
}

# unpack_sources LIST FOLDER: unpacks each archive of the list as it is, then stamps the folder for is_unpacked.
unpack_sources() {
  local list=$1 folder=$2 requirement
  mkdir -p "$folder"
  while read -r requirement; do
    logged tar -xzf "$(wheel_file "$requirement")" --no-same-owner -C "$folder" ||
      cannot_go_on "$(wheel_stem "$requirement") could not be unpacked: $(tail -n 1 "$LOG") (see $LOG)"
  done < <(entries_of "$list")
  entries_of "$list" >"$folder/.wheels"
}

# Imports what the tests import, so that a package that is missing shows here, and the compiled modules are there for the tests.
import_oracle() {
  logged env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 "$1" -c '
import gguf, hjson, pydantic, tokenizers
from accelerate.commands.config.config_args import load_config_from_file
from tensorboard.backend.event_processing import event_accumulator
from transformers import AutoTokenizer, GPT2LMHeadModel, LlamaForCausalLM'
}

install_oracle() {
  local list=$ROOT/scripts/setup/wheels-tests.txt sources=$ROOT/scripts/setup/sources-tests.txt fresh=$DEPS/oracle.new version packages
  oracle_is_complete && return
  require_space "$DEPS" 700 'the Python packages of the tests'
  mkdir -p "$WHEELS"
  say "downloading the Python packages that the tests compare with, and SmolLM2-135M (150 MB)"
  download_wheels "$list"
  download_wheels "$sources" source_download
  rm -rf "$fresh"
  logged "$PYTHON" -m venv --without-pip "$fresh" || cannot_go_on "python3 -m venv failed: $(tail -n 1 "$LOG") (see $LOG)"
  version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  packages=$fresh/lib/python$version/site-packages
  unpack_wheels "$list" "$packages" "$fresh"
  unpack_sources "$sources" "$fresh/source"
  if [[ $version == 3.11 ]]; then
    { link_torch "$packages" && logged "$fresh/bin/python" -m torch.distributed.run --help; } ||
      cannot_go_on "the torchrun of the tests could not be put together: $(tail -n 1 "$LOG") (see $LOG)"
    import_oracle "$fresh/bin/python" ||
      cannot_go_on "the Python packages of the tests do not import: $(tail -n 1 "$LOG") (see $LOG)"
  else
    say "the system's Python is $version, the torch wheel's 3.11: tests against the real torchrun and transformers will be skipped"
  fi
  cp "$ROOT/scripts/setup/wheels.txt" "$fresh/.torch"
  install_folder "$fresh" "$DEPS/oracle"
  drop_wheels "$list"
  drop_wheels "$sources"
}
