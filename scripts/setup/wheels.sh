# shellcheck shell=bash
# PyPI wheels: downloads each one that is missing, checked against its pinned digest, and unpacks a list of them into one folder.
# A list of source archives (sources-*.txt) is downloaded and kept the same way.
# A wheel appears under its name only when complete, so an interrupted run goes on at the wheel that was missing.
# TRIREME_WHEELS names a folder to keep wheels in, for several checkouts; by default they are removed once unpacked.

readonly PYTHON=${TRIREME_PYTHON:-/usr/bin/python3}
readonly WHEELS=${TRIREME_WHEELS:-$DEPS/wheels}
readonly DOWNLOAD_ATTEMPTS=3

# "torch==2.11.0 --hash=..." -> "torch-2.11.0", how its file name starts.
wheel_stem() {
  local requirement=${1%% *}
  printf '%s-%s' "$(tr 'A-Z.-' 'a-z__' <<<"${requirement%%==*}")" "${requirement##*==}"
}

# The downloaded file of a requirement, or nothing.
wheel_file() { { compgen -G "$WHEELS/$(wheel_stem "$1")-*.whl" || compgen -G "$WHEELS/$(wheel_stem "$1").tar.gz" || true; } | head -n 1; }

has_pinned_digest() { [[ $(sha256sum <"$1") == "${2##*sha256:}  -" ]]; }

explain_pip_failure() {
  local start=$1 name=$2
  if log_says "$start" "$DISK_FULL" || (($(free_megabytes "$WHEELS") < 1)); then
    cannot_go_on "disk full: $name does not fit into $WHEELS: free some space and run this again"
  elif log_says "$start" 'do not match the hashes'; then
    cannot_go_on "the file that PyPI sent for $name has another SHA-256 than the pinned one: a proxy or mirror altered it, use another PIP_INDEX_URL (see $LOG)"
  elif log_says "$start" 'CERTIFICATE_VERIFY_FAILED'; then
    cannot_go_on "the certificate that PyPI's address shows is not trusted here: behind a proxy, install its certificate (update-ca-certificates) or name it in PIP_CERT (see $LOG)"
  elif log_says "$start" "$NO_NETWORK|$CONNECTION_LOST"; then
    cannot_go_on "no network to PyPI: $name could not be downloaded: check the connection, HTTPS_PROXY and PIP_INDEX_URL (see $LOG)"
  fi
  cannot_go_on "pip could not download $name: $(tail -n "+$start" "$LOG" | grep -E '^ERROR' | tail -n 1) (see $LOG)"
}

# The tags are spelled out because pip of Debian 12 does not derive the older ones, and so that this machine's Python does not matter.
pip_download() {
  local requirement=$1 folder=$2 quiet=()
  [[ -t 1 ]] || quiet=(--quiet)  # the progress bar is for people
  printf '%s\n' "$requirement" >"$folder/requirement.txt"
  printf '+ pip download %s\n' "$requirement" >>"$LOG"
  "$PYTHON" -m pip download "${quiet[@]}" --no-deps --require-hashes --only-binary=:all: --no-cache-dir --disable-pip-version-check \
    --python-version 3.11 --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
    --platform manylinux_2_25_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    --dest "$folder" -r "$folder/requirement.txt" 2>>"$LOG" </dev/null
}

source_download() {
  local requirement=$1 folder=$2
  logged "$PYTHON" "$ROOT/scripts/setup/download_source.py" "${requirement%% *}" "$folder" || return
  has_pinned_digest "$folder/$(wheel_stem "$requirement").tar.gz" "$requirement" && return
  printf 'ERROR: %s does not match: do not match the hashes\n' "$requirement" >>"$LOG"
  return 1
}

download_wheel() {
  local requirement=$1 download=$2 name attempt start partial
  name=$(wheel_stem "$requirement")
  partial=$WHEELS/partial-$name
  start=$(($(log_length) + 1))
  for ((attempt = 1; attempt <= DOWNLOAD_ATTEMPTS; ++attempt)); do
    rm -rf "$partial"
    mkdir -p "$partial" || cannot_go_on "cannot write to $WHEELS: $(ls -ld "$WHEELS" 2>&1)"
    if "$download" "$requirement" "$partial"; then
      mv "$partial/$name"[-.]* "$WHEELS/"
      rm -rf "$partial"
      return
    fi
    rm -rf "$partial"
    # Only a connection that was lost on the way is worth another try; pip itself has tried to connect several times.
    if log_says "$start" "$NO_NETWORK" || ! log_says "$start" "$CONNECTION_LOST"; then
      break
    fi
    say "the connection broke while downloading $name; trying again"
  done
  explain_pip_failure "$start" "$name"
}

ensure_wheel() {
  local requirement=$1 download=$2 file
  file=$(wheel_file "$requirement")
  if [[ -n $file ]] && ! has_pinned_digest "$file" "$requirement"; then
    say "$(basename "$file") is damaged; downloading it again"
    rm -f "$file"
    file=''
  fi
  [[ -n $file ]] || download_wheel "$requirement" "$download"
}

# is_unpacked LIST FOLDER: whether the folder holds exactly what the list says.
is_unpacked() { entries_of "$1" | cmp -s - "$2/.wheels"; }

# unpack_wheels LIST FOLDER STAMPED: unpacks all wheels of the list into FOLDER, then stamps it for is_unpacked.
unpack_wheels() {
  local list=$1 folder=$2 stamped=$3 requirement
  while read -r requirement; do
    logged "$PYTHON" "$ROOT/scripts/setup/unpack_wheel.py" "$(wheel_file "$requirement")" "$folder" || {
      log_says 1 "$DISK_FULL" && cannot_go_on "disk full: $(wheel_stem "$requirement") could not be unpacked into $folder"
      cannot_go_on "$(wheel_stem "$requirement") could not be unpacked: $(tail -n 1 "$LOG") (see $LOG)"
    }
  done < <(entries_of "$list")
  entries_of "$list" >"$stamped/.wheels"
}

# download_wheels LIST [source_download]
download_wheels() {
  local requirement
  while read -r requirement; do
    ensure_wheel "$requirement" "${2:-pip_download}"
  done < <(entries_of "$1")
}

drop_wheels() {
  local requirement
  [[ -z ${TRIREME_WHEELS:-} ]] || return 0
  while read -r requirement; do
    rm -f "$(wheel_file "$requirement")"
  done < <(entries_of "$1")
}

# Puts a finished folder in place in one rename; what was there before goes.
install_folder() {
  local finished=$1 place=$2
  rm -rf "$place.old"
  [[ ! -e $place ]] || mv "$place" "$place.old"
  mv "$finished" "$place"
  rm -rf "$place.old"
}

install_libtorch() {
  local list=$ROOT/scripts/setup/wheels.txt site=$DEPS/site
  is_unpacked "$list" "$site" && return
  mkdir -p "$WHEELS"
  rm -rf "$site.new" "$WHEELS"/partial-*  # of an interrupted run
  require_space "$DEPS" $((2800 - $(du -sm "$WHEELS" | cut -f1))) 'LibTorch (download 0.6 GB, unpacked 1.1 GB) and the build (1 GB)'
  say "downloading LibTorch 2.11.0 from PyPI (550 MB) into $DEPS"
  download_wheels "$list"
  say "unpacking LibTorch (1.1 GB)"
  mkdir -p "$site.new"
  unpack_wheels "$list" "$site.new" "$site.new"
  install_folder "$site.new" "$site"
  drop_wheels "$list"
}
