#!/usr/bin/env bash
# ray 2.60.0: the plain package, without its `tune` extra, installs a console script named `tune`, whose
# import needs packages of that extra: `tune --help` ends with an ImportError. Whichever package with a
# command of that name is installed last owns the file.
# Seen: entry points ray, serve and tune; `tune --help`: exit code 1, "Can't import ray.tune".
. "$(dirname "$0")/common.sh"
install ray==2.60.0
"$tmp/venv/bin/python" -c '
from importlib.metadata import distribution
print("console scripts:", *sorted(e.name for e in distribution("ray").entry_points))'
status=0
"$tmp/venv/bin/tune" --help >"$tmp/said" 2>&1 || status=$?
tail -n 1 "$tmp/said"
[ "$status" = 1 ] || fail "tune --help exits with $status"
grep -q "Can't import ray.tune" "$tmp/said" || fail "it starts, or says something else"
echo "AS SEEN: ray installs a command tune that cannot start"
