# shellcheck shell=bash
# What kind of machine this is: processor, distribution, compiler.

check_architecture() {
  local machine
  machine=$(uname -m)
  [[ $machine == x86_64 ]] ||
    cannot_go_on "unsupported processor $machine: the LibTorch wheel is built for x86_64 here, use such a machine"
}

# Sets DISTRIBUTION to debian-12, ubuntu-22.04 or ubuntu-24.04.
detect_distribution() {
  local release=${TRIREME_OS_RELEASE:-/etc/os-release} ID='' VERSION_ID='' PRETTY_NAME='an unknown system'
  [[ -r $release ]] && . "$release"
  DISTRIBUTION=$ID-$VERSION_ID
  case $DISTRIBUTION in
    debian-12) ;;
    ubuntu-22.04 | ubuntu-24.04) say "$PRETTY_NAME is untested: the packages have the same names as on Debian 12" ;;
    *) cannot_go_on "unsupported system $PRETTY_NAME: use Debian 12 (or Ubuntu 22.04 or 24.04, untested), for instance in a container debian:12" ;;
  esac
}

# The major version of GCC, or nothing for another compiler or none.
gcc_major() { "$1" -dumpfullversion 2>/dev/null | cut -d. -f1; }  # Clang does not know this option

is_supported_compiler() {
  local major
  major=$(gcc_major "$1")
  [[ -n $major ]] && ((major >= 12))
}

# Sets COMPILER: $CXX when given, else the first g++ of version 12 or newer.
select_compiler() {
  local candidate
  if [[ -n ${CXX:-} ]]; then
    is_supported_compiler "$CXX" ||
      cannot_go_on "unsupported compiler CXX=$CXX ($("$CXX" --version 2>&1 | head -n 1)): unset CXX, or set it to g++ 12 or newer"
    COMPILER=$CXX
    return
  fi
  for candidate in g++ g++-14 g++-13 g++-12; do
    if is_supported_compiler "$candidate"; then
      COMPILER=$candidate
      return
    fi
  done
  cannot_go_on "unsupported compiler ($(g++ --version 2>&1 | head -n 1)): g++ 12 or newer is needed: apt-get install g++-12"
}
