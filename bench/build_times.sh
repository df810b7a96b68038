#!/usr/bin/env bash
# Measures `make test` in a fresh clone of HEAD whose packages and wheels are there already, and the rebuild after touching one source
# file, and writes bench/results/build_times.json. Promised: under 20 minutes and under 15 seconds on two cores.
# usage: bench/build_times.sh [FILE_TO_TOUCH]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly TOUCHED=${1:-src/engine/executor.cpp}
readonly RESULT=bench/results/build_times.json
readonly PROMISED_COLD=1200 PROMISED_INCREMENTAL=15

export CCACHE_DISABLE=1  # cold means compiled
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

seconds() { # COMMAND...: its wall clock; the output goes to a log that is shown when it fails
  local start
  start=$(date +%s.%N)
  "$@" >"$work/log" 2>&1 || { tail -n 50 "$work/log" >&2 && return 1; }
  awk -v start="$start" -v end="$(date +%s.%N)" 'BEGIN { printf "%.1f", end - start }'
}

# The wheels of this checkout, kept, so that the clone unpacks but does not download.
export TRIREME_WHEELS=$work/wheels
mkdir -p "$TRIREME_WHEELS"
git clone -q . "$work/warm"
"$work/warm/scripts/setup.sh" --tests >/dev/null
rm -rf "$work/warm"

git clone -q . "$work/clone"
cold=$(seconds make -C "$work/clone" test)
touch "$work/clone/$TOUCHED"
incremental=$(seconds cmake --build "$work/clone/build")

python3 - "$RESULT" "$cold" "$incremental" "$TOUCHED" "$PROMISED_COLD" "$PROMISED_INCREMENTAL" <<'P'
import datetime, json, os, re, subprocess, sys

result, cold, incremental, touched, promised_cold, promised_incremental = sys.argv[1:]
processor = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())[1]
rows = [
    {"what": "make test in a fresh clone, packages and wheels there", "seconds": float(cold), "promised": f"< {promised_cold}"},
    {"what": f"rebuild after touching {touched}", "seconds": float(incremental), "promised": f"< {promised_incremental}"},
]
record = {
    "bench": "Build times",
    "command": "bench/build_times.sh",
    "machine": {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)),
        "compiler": subprocess.run(["g++", "--version"], capture_output=True, text=True).stdout.splitlines()[0],
        "commit": subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip(),
        "date": datetime.date.today().isoformat(),
    },
    "rows": rows,
}
os.makedirs(os.path.dirname(result), exist_ok=True)
with open(result, "w", encoding="utf-8") as file:
    json.dump(record, file, indent=2)
    file.write("\n")
print("\n".join(f"{row['what']}: {row['seconds']} s (promised {row['promised']})" for row in rows))
P
awk -v c="$cold" -v i="$incremental" -v pc=$PROMISED_COLD -v pi=$PROMISED_INCREMENTAL 'BEGIN { exit !(c < pc && i < pi) }' ||
  { echo "build_times: a promise is not kept" >&2 && exit 1; }
