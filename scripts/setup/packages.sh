# shellcheck shell=bash
# Debian packages: finds what is missing and installs it with apt-get, touching neither network nor root when nothing is.

# Prints the packages that the given parts ("" is the build itself) need.
needed_packages() {
  local name part wanted
  while read -r name part; do
    for wanted in '' "$@"; do
      [[ $part == "$wanted" ]] || continue
      [[ $DISTRIBUTION == ubuntu-22.04 && $name == g++ ]] && name=g++-12
      printf '%s\n' "$name"
      break
    done
  done < <(entries_of "$ROOT/scripts/setup/packages.txt")
}

missing_packages() {
  local installed name
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' 2>/dev/null | awk '$2 == "installed" { print $1 }')
  for name in "$@"; do
    grep -qxF -- "$name" <<<"$installed" || printf '%s\n' "$name"
  done
}

explain_apt_failure() {
  local start=$1
  if log_says "$start" "$DISK_FULL"; then
    cannot_go_on "disk full: apt-get could not store the packages: free about 1000 MB under /usr and /var (see $LOG)"
  elif log_says "$start" 'could not get lock|unable to acquire the dpkg'; then
    cannot_go_on "another program holds apt's lock: wait until it is done and run this again"
  elif log_says "$start" "$NO_NETWORK"; then
    cannot_go_on "no network to the Debian mirror: apt-get could not fetch the packages: check the connection, /etc/apt/sources.list and http_proxy (see $LOG)"
  elif log_says "$start" 'unable to locate package|no installation candidate'; then
    cannot_go_on "apt-get does not know a package: $(tail -n "+$start" "$LOG" | grep -m 1 -iE 'unable to locate|no installation candidate'): add the component main (universe on Ubuntu) to /etc/apt/sources.list"
  fi
  cannot_go_on "apt-get failed: $(tail -n "+$start" "$LOG" | grep -E '^(E|dpkg):' | tail -n 1) (see $LOG)"
}

install_packages() {
  local needed missing start
  mapfile -t needed < <(needed_packages "$@")
  mapfile -t missing < <(missing_packages "${needed[@]}")
  ((${#missing[@]})) || return 0
  [[ $(id -u) == 0 ]] ||
    cannot_go_on "not root, and Debian packages are missing: run once: sudo apt-get install -y --no-install-recommends ${missing[*]}"
  say "installing Debian packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  start=$(($(log_length) + 1))
  # A mirror that fails here may not matter (a third party's); what matters is whether the packages can be installed.
  logged apt-get -o DPkg::Lock::Timeout=300 update || true
  logged apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${missing[@]}" || explain_apt_failure "$start"
}
