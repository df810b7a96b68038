# shellcheck shell=bash
# Shared by the parts of scripts/setup.sh: messages, the log, and what a failed tool's output means.
# Expects ROOT (the checkout) and DEPS (its .deps folder).

readonly EXIT_ENVIRONMENT=3  # as in the exit codes of the binary

say() { printf 'setup: %s\n' "$*"; }

# Says in one line what is missing and how to get it, and ends.
cannot_go_on() {
  printf 'setup: cannot go on: %s\n' "$*" >&2
  exit "$EXIT_ENVIRONMENT"
}

# Runs a command with all its output in the log file, which cannot_go_on messages point to.
logged() {
  printf '+ %s\n' "$*" >>"$LOG"
  "$@" >>"$LOG" 2>&1 </dev/null
}

# One entry a line, comments and empty lines left out.
entries_of() { grep -vE '^[[:space:]]*(#|$)' "$1"; }

free_megabytes() { df -Pk "$1" | awk 'NR == 2 { print int($4 / 1024) }'; }

require_space() {
  local folder=$1 needed=$2 purpose=$3 free
  free=$(free_megabytes "$folder")
  ((free >= needed)) ||
    cannot_go_on "disk full: $folder has $free MB free, $needed MB are needed for $purpose: free some, or clone to a larger disk"
}

# Whether the log from a line on matches. Not grep -q: it would end before tail, whose broken pipe would then count as "no".
log_says() { tail -n "+$1" "$LOG" | grep -iE "$2" >/dev/null; }
log_length() { wc -l <"$LOG"; }

readonly DISK_FULL='no space left on device|errno 28|enough free space|disk quota exceeded'
readonly NO_NETWORK='temporary failure|could not resolve|could not connect|unable to connect|network is unreachable|connection timed out|connection refused|no route to host|name or service not known|failed to establish a new connection|max retries exceeded|failed to fetch|connect timeout|proxyerror'
readonly CONNECTION_LOST='timed out|incompleteread|protocolerror|connection (reset|aborted)'
