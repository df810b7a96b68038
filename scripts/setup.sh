#!/usr/bin/env bash
# Makes a bare machine able to build Trireme: Debian packages from apt, LibTorch from PyPI into .deps/ of this checkout.
# Does nothing, and in well under a second, when all is there. When it cannot go on it says in one line what is missing and how to
# get it, and exits 3.
#
# usage: scripts/setup.sh [--tests] [--checks]
#   --tests            also what `make test` compares with (.deps/oracle)
#   --checks           also clang-format and clang-tidy
#   --print-compiler   only prints the compiler that the build should use
set -Eeuo pipefail
trap 'printf "setup: failed at %s line %s: %s\n" "${BASH_SOURCE[0]}" "$LINENO" "$BASH_COMMAND" >&2' ERR
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
DEPS=${TRIREME_DEPS_FOLDER:-$ROOT/.deps}
LOG=$DEPS/setup.log
readonly ROOT DEPS LOG
export LC_ALL=C  # the messages of apt and pip are read
# shellcheck disable=SC1090
for part in common machine packages wheels oracle; do
  . "$ROOT/scripts/setup/$part.sh"
done

usage() { sed -nE '2,/^set/{s/^# ?//p}' "${BASH_SOURCE[0]}"; }

open_deps_folder() {
  if ! { mkdir -p "$DEPS" && : >>"$DEPS/lock"; } 2>/dev/null; then
    (($(free_megabytes "$ROOT") > 0)) || cannot_go_on "disk full: no space left in $ROOT: free about 2800 MB, or clone to a larger disk"
    cannot_go_on "cannot write to $DEPS: run this as the owner of the checkout ($(stat -c %U "$ROOT"))"
  fi
  exec 9>>"$DEPS/lock"
  if ! flock -n 9; then
    say "another set-up is at work in $DEPS; waiting for it"
    flock 9
  fi
  : >"$LOG"
}

main() {
  local parts=() argument
  for argument in "$@"; do
    case $argument in
      --tests | --checks) parts+=("${argument#--}") ;;
      --print-compiler)
        select_compiler
        command -v "$COMPILER"  # in full: CMake takes another spelling for another compiler and starts anew
        return
        ;;
      --help | -h) usage && return ;;
      *) printf 'setup: unknown argument %s\n' "$argument" >&2 && usage >&2 && return 2 ;;
    esac
  done
  check_architecture
  detect_distribution
  open_deps_folder
  install_packages "${parts[@]}"
  select_compiler
  install_libtorch
  if [[ " ${parts[*]} " == *' tests '* ]]; then
    install_oracle
  fi
}

main "$@"
