#!/usr/bin/env bash
# scripts/setup.sh says in one line what is missing and how to get it, and goes on where it was interrupted. Every tool that would touch
# the machine or the network is replaced by a stand-in on PATH; the checkout lies at a path with a space.
# usage: setup_test.sh SOURCE_FOLDER
set -uo pipefail
readonly SOURCE=$1
PYTHON=/usr/bin/python3
[[ -x $PYTHON ]] || PYTHON=$(command -v python3)
TEMPORARY=$(mktemp -d)
trap 'rm -rf "$TEMPORARY"' EXIT
readonly PYTHON TEMPORARY WORK=$TEMPORARY/work INDEX=$TEMPORARY/index
mkdir "$WORK" "$INDEX"
failures=0 name='' output='' errors='' code=0

# --- stand-ins -------------------------------------------------------------------------------------------------------------------------

stand_in() { # NAME BODY: a program of that name, whose calls are written down in $WORK/calls
  printf '#!/bin/bash\necho "%s $*" >>"%s/calls"\n%s\n' "$1" "$WORK" "$2" >"$WORK/bin/$1"
  chmod +x "$WORK/bin/$1"
}

calls() { grep -cE "$1" "$WORK/calls" 2>/dev/null || true; }

# Three tiny wheels in place of LibTorch and its companions, a source archive, and the lists of them with their digests, as on PyPI.
make_index() {
  "$PYTHON" - "$INDEX" <<'P'
import hashlib, pathlib, sys, tarfile, zipfile
index = pathlib.Path(sys.argv[1])
with open(index / "wheels.txt", "w") as requirements:
    for name, version in ("torch", "2.11.0"), ("nvidia_cuda_runtime", "13.0.96"), ("nvidia_cuda_cupti", "13.0.85"):
        file = index / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(file, "w") as wheel:
            wheel.writestr(f"{name}/content.txt", f"{name}-{version}")
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        print(f"{name.replace('_', '-')}=={version} --hash=sha256:{digest}", file=requirements)
archive = index / "tool-1.0.tar.gz"
with tarfile.open(archive, "w:gz") as source:
    source.add(index / "wheels.txt", "tool-1.0/tool.py")
(index / "sources.txt").write_text(f"tool==1.0 --hash=sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}\n")
P
}

# A machine on which all goes well: Debian 12, root, every package but one already there, PyPI within reach.
fresh_machine() {
  rm -rf "${WORK:?}"/*
  CHECKOUT="$WORK/a path/trireme"
  mkdir -p "$WORK/bin" "$CHECKOUT"
  cp -r "$SOURCE/scripts" "$CHECKOUT/"
  cp "$INDEX/wheels.txt" "$CHECKOUT/scripts/setup/"
  printf 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n' >"$WORK/os-release"
  grep -oE '^[a-z0-9+.-]+' "$CHECKOUT/scripts/setup/packages.txt" | sed 's/$/ installed/' >"$WORK/installed"
  stand_in uname 'echo x86_64'
  stand_in id 'echo 0'
  stand_in df 'printf "Filesystem 1024-blocks Used Available Capacity Mounted\n/dev/x 9 9 90000000 1%% /\n"'
  stand_in dpkg-query "cat '$WORK/installed'"
  stand_in apt-get ':'
  stand_in g++ 'echo 12.2.0'
  cp "$INDEX/sources.txt" "$CHECKOUT/scripts/setup/sources-tests.txt"
  # Downloads copy the wheel that the requirements file names, or the source archive; all else is the real Python.
  stand_in python "
if [[ \$2 == pip ]]; then
  while [[ \$1 != --dest ]]; do shift; done
  stem=\$(sed -E 's/ .*//; s/-/_/g; s/==/-/' \"\$2/requirement.txt\")
  cp '$INDEX/'\$stem-*.whl \"\$2\"
elif [[ \$1 == */download_source.py ]]; then
  cp '$INDEX/tool-1.0.tar.gz' \"\$3\"
else
  exec '$PYTHON' \"\$@\"
fi"
}

run_setup() {
  env -u CXX -u TRIREME_WHEELS PATH="$WORK/bin:$PATH" TRIREME_OS_RELEASE="$WORK/os-release" TRIREME_PYTHON="$WORK/bin/python" \
    "${environment[@]}" "$CHECKOUT/scripts/setup.sh" "$@" >"$WORK/stdout" 2>"$WORK/stderr" </dev/null
  code=$?
  output=$(<"$WORK/stdout") errors=$(<"$WORK/stderr")
}

# --- expectations ----------------------------------------------------------------------------------------------------------------------

fail() {
  failures=$((failures + 1))
  printf 'FAILED %s: %s\n  exit %s\n  stdout: %s\n  stderr: %s\n' "$name" "$1" "$code" "$output" "$errors"
}

expect_stop() { # WHAT HOW: one line, exit 3, naming both
  [[ $code == 3 ]] || fail "exit code 3 expected"
  [[ $(wc -l <"$WORK/stderr") == 1 ]] || fail "one line expected"
  [[ $errors == 'setup: cannot go on: '* ]] || fail "does not start with what it is"
  [[ $errors == *"$1"* ]] || fail "does not say what: $1"
  [[ $errors == *"$2"* ]] || fail "does not say how: $2"
}

expect_done() {
  [[ $code == 0 && -z $errors ]] || fail "success without errors expected"
  [[ $(<"$CHECKOUT/.deps/site/nvidia_cuda_cupti/content.txt") == nvidia_cuda_cupti-13.0.85 ]] || fail "LibTorch is not unpacked"
  [[ -z $(compgen -G "$CHECKOUT/.deps/wheels/*") ]] || fail "wheels are left over"
}

expect_calls() { # COUNT PATTERN
  [[ $(calls "$2") == "$1" ]] || fail "$1 calls of '$2' expected, not $(calls "$2")"
}

missing_package() { sed -i "/^$1 /d" "$WORK/installed"; }

pip_says() {
  stand_in python "if [[ \$2 == pip ]]; then echo '$1' >&2; exit 1; fi; exec '$PYTHON' \"\$@\""
}

# --- the promises ----------------------------------------------------------------------------------------------------------------------

test_all_goes_well_and_a_second_run_touches_nothing() {
  run_setup
  expect_done
  expect_calls 0 '^apt-get'
  expect_calls 3 'pip download'
  run_setup
  expect_done
  expect_calls 3 'pip download'
  [[ -z $output ]] || fail "a second run should be silent"
}

test_missing_packages_are_installed_and_only_those() {
  missing_package libfmt-dev
  run_setup
  expect_done
  expect_calls 1 '^apt-get .* update$'
  expect_calls 1 '^apt-get .* install -y --no-install-recommends libfmt-dev$'
}

test_another_processor_is_refused() {
  stand_in uname 'echo aarch64'
  run_setup
  expect_stop 'unsupported processor aarch64' 'x86_64'
}

test_another_system_is_refused() {
  printf 'ID=fedora\nVERSION_ID=40\nPRETTY_NAME="Fedora Linux 40"\n' >"$WORK/os-release"
  run_setup
  expect_stop 'unsupported system Fedora Linux 40' 'use Debian 12'
}

test_an_unknown_system_is_refused() {
  rm "$WORK/os-release"
  run_setup
  expect_stop 'unsupported system' 'use Debian 12'
}

test_ubuntu_is_said_to_be_untested_and_takes_its_newer_compiler() {
  printf 'ID=ubuntu\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.4 LTS"\n' >"$WORK/os-release"
  stand_in g++ 'echo 11.4.0'
  stand_in g++-14 'exit 1'
  stand_in g++-13 'exit 1'
  stand_in g++-12 'echo 12.3.0'
  run_setup
  expect_done
  expect_calls 1 '^apt-get .* install .* g\+\+-12$'
  [[ $output == *untested* ]] || fail "should say that Ubuntu is untested"
  run_setup --print-compiler
  [[ $output == */g++-12 ]] || fail "should build with g++-12"
}

test_without_root_it_says_what_to_install() {
  stand_in id 'echo 1000'
  missing_package libfmt-dev
  missing_package cmake
  run_setup
  expect_stop 'not root' 'sudo apt-get install -y --no-install-recommends cmake libfmt-dev'
  expect_calls 0 '^apt-get'
}

test_without_root_but_with_all_packages_it_goes_on() {
  stand_in id 'echo 1000'
  run_setup
  expect_done
}

apt_fails_with() {
  missing_package cmake
  stand_in apt-get "[[ \$* == *update* ]] && exit 0; echo \"$1\" >&2; exit 100"
  run_setup
}

test_no_network_for_apt() {
  apt_fails_with 'E: Failed to fetch http://deb.debian.org/x.deb  Temporary failure resolving deb.debian.org'
  expect_stop 'no network to the Debian mirror' '/etc/apt/sources.list'
}

test_no_network_for_apt_without_any_package_list() {
  missing_package cmake
  stand_in apt-get '[[ $* == *update* ]] && echo "W: Failed to fetch http://deb.debian.org/x  Could not connect" && exit 0
echo "E: Unable to locate package cmake"; exit 100'
  run_setup
  expect_stop 'no network to the Debian mirror' 'http_proxy'
}

test_a_package_unknown_to_apt() {
  apt_fails_with 'E: Unable to locate package cmake'
  expect_stop 'does not know a package: E: Unable to locate package cmake' 'add the component main'
}

test_no_space_for_packages() {
  apt_fails_with "E: You don't have enough free space in /var/cache/apt/archives/."
  expect_stop 'disk full' 'free about'
}

test_apt_is_busy() {
  apt_fails_with 'E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7'
  expect_stop "apt's lock" 'wait'
}

test_an_old_compiler() {
  for compiler in g++ g++-14 g++-13 g++-12; do stand_in $compiler 'echo 10.2.1'; done
  run_setup
  expect_stop 'unsupported compiler' 'apt-get install g++-12'
}

test_another_compiler_asked_for() {
  stand_in clang++ '[[ $1 == --version ]] && echo "clang version 14.0.6" || exit 1'
  environment=(CXX=clang++)
  run_setup
  expect_stop 'CXX=clang++ (clang version 14.0.6)' 'unset CXX'
}

test_too_little_space_is_seen_before_the_download() {
  stand_in df 'printf "Filesystem 1024-blocks Used Available Capacity Mounted\n/dev/x 9 9 500000 99%% /\n"'
  run_setup
  expect_stop 'disk full' 'MB are needed for LibTorch'
  expect_calls 0 'pip download'
}

test_no_network_to_pypi() {
  pip_says 'WARNING: Retrying: NewConnectionError: Failed to establish a new connection: Temporary failure in name resolution'
  run_setup
  expect_stop 'no network to PyPI: torch-2.11.0' 'HTTPS_PROXY'
  expect_calls 1 'pip download'
}

test_a_broken_connection_is_tried_again() {
  pip_says 'pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool: Read timed out.'
  run_setup
  expect_stop 'no network to PyPI: torch-2.11.0' 'PIP_INDEX_URL'
  expect_calls 3 'pip download'
}

test_the_disk_fills_during_the_download() {
  pip_says 'ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device'
  run_setup
  expect_stop 'disk full: torch-2.11.0' 'free some space'
}

test_an_altered_file_is_refused() {
  pip_says 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.'
  run_setup
  expect_stop 'another SHA-256' 'PIP_INDEX_URL'
}

test_a_package_withdrawn_from_pypi() {
  pip_says 'ERROR: No matching distribution found for torch==2.11.0'
  run_setup
  expect_stop 'No matching distribution found for torch==2.11.0' 'setup.log'
}

test_a_folder_that_cannot_be_written() {
  : >"$CHECKOUT/.deps"
  run_setup
  expect_stop 'cannot write to' 'owner of the checkout'
}

# The whole run is killed during the second wheel: nothing half-made is taken for whole, and the first wheel is not fetched again.
test_an_interrupted_download_goes_on_at_the_wheel_that_was_missing() {
  cp "$WORK/bin/python" "$WORK/bin/python.good"
  stand_in python "
if [[ \$2 == pip ]] && grep -q runtime \"\${@: -1}\"; then
  echo half >\"\$(dirname \"\${@: -1}\")/nvidia_cuda_runtime-13.0.96-py3-none-any.whl\"
  kill -KILL \$PPID
  exit 1
fi
exec '$WORK/bin/python.good' \"\$@\""
  run_setup
  [[ $code == 137 ]] || fail "should have been killed"
  [[ ! -e $CHECKOUT/.deps/site ]] || fail "an unfinished folder took the place of the finished one"
  mv "$WORK/bin/python.good" "$WORK/bin/python"
  : >"$WORK/calls"
  run_setup
  expect_done
  expect_calls 2 'pip download'
}

test_a_damaged_wheel_is_fetched_again() {
  mkdir -p "$CHECKOUT/.deps/wheels"
  echo damaged >"$CHECKOUT/.deps/wheels/torch-2.11.0-py3-none-any.whl"
  run_setup
  expect_done
  [[ $output == *'is damaged'* ]] || fail "should say that the wheel is damaged"
}

test_another_version_replaces_the_old_one_whole() {
  run_setup
  : >"$CHECKOUT/.deps/site/left_from_the_old_version"
  sed -i 's/^#.*//; 1i# changed' "$CHECKOUT/scripts/setup/wheels.txt"
  sed -i '/^torch/d' "$CHECKOUT/scripts/setup/wheels.txt"
  run_setup
  expect_done
  [[ ! -e $CHECKOUT/.deps/site/left_from_the_old_version && ! -e $CHECKOUT/.deps/site/torch ]] || fail "old files are left"
}

test_wheels_in_a_folder_of_the_users_are_kept_and_used() {
  environment=(TRIREME_WHEELS="$WORK/my wheels")
  run_setup
  expect_done
  rm -rf "$CHECKOUT/.deps"
  run_setup
  expect_done
  expect_calls 3 'pip download'
}

# Under a Python without wheels for torch, so that the stand-ins need not be a torch.
test_the_packages_of_the_tests_are_unpacked_once() {
  local list=$CHECKOUT/scripts/setup/wheels-tests.txt oracle="$CHECKOUT/.deps/oracle"
  cp "$WORK/bin/python" "$WORK/bin/python.good"
  stand_in python "[[ \$* == *version_info* ]] && echo 3.12 && exit; exec '$WORK/bin/python.good' \"\$@\""
  cp "$INDEX/wheels.txt" "$list"
  run_setup --tests
  expect_done
  [[ $output == *'transformers will be skipped'* ]] || fail "should say what will be skipped"
  [[ -e $oracle/lib/python3.12/site-packages/torch/content.txt ]] || fail "the packages are not unpacked"
  [[ -e $oracle/source/tool-1.0/tool.py ]] || fail "the source archive is not unpacked"
  "$oracle/bin/python" -c '' || fail "the Python of the tests does not start"
  : >"$WORK/calls"
  run_setup --tests
  expect_calls 0 'pip download|download_source'
  sed -i '/^torch/d' "$list"
  run_setup --tests
  [[ ! -e $oracle/lib/python3.12/site-packages/torch ]] || fail "a package is left that the list no longer has"
  sed -i 's/sha256:./sha256:x/' "$CHECKOUT/scripts/setup/sources-tests.txt"
  run_setup --tests
  expect_stop 'another SHA-256' 'tool-1.0'
  [[ -x $oracle/bin/python ]] || fail "the old Python should still be there"
}

test_an_unknown_argument_is_a_usage_error() {
  run_setup --no-such-thing
  [[ $code == 2 && $errors == *'unknown argument --no-such-thing'* ]] || fail "usage error expected"
}

make_index
for name in $(declare -F | awk '$3 ~ /^test_/ { print $3 }'); do
  environment=()
  fresh_machine
  "$name"
  printf '%s\n' "$name"
done
if ((failures)); then
  printf '%d expectations failed\n' "$failures"
  exit 1
fi
