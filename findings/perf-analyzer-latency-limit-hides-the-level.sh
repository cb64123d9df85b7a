#!/usr/bin/env bash
# perf_analyzer 2.51.0: `--latency-threshold` ends a range at the first level above it, with exit
# code 0, and leaves that level out of the report and the CSV. If that is the first level, it
# reports nothing.
# Seen: of 1:8 on a model of 20 ms, limit 30 ms: a row for concurrency 1 alone; limit 10 ms: no row.
. "$(dirname "$0")/common.sh"
model slow TYPE_FP32 "time.sleep(0.02)"
start_server
levels() { [ ! -s "$1" ] || sed -n 's/^\([0-9]\{1,\}\),.*/\1/p' "$1" | xargs; }
for limit in 30 10; do
  code=0
  load -m slow --concurrency-range 1:8 --latency-threshold "$limit" --measurement-interval 1000 \
    --max-trials 3 --stability-percentage 999 -f "$tmp/$limit.csv" \
    --profile-export-file "$tmp/$limit.json" >"$tmp/$limit.txt" || code=$?
  echo "limit $limit ms: exit code $code, levels in the CSV: $(levels "$tmp/$limit.csv")"
  [ "$code" = 0 ] || fail "exit code $code"
done
[ "$(levels "$tmp/30.csv")" = 1 ] || fail "the CSV has other levels"
[ "$(levels "$tmp/10.csv")" = "" ] || fail "the CSV has the level above the limit"
python - "$tmp/30.json" <<'PYTHON' || fail "the export lacks the level above the limit"
import json
import sys

with open(sys.argv[1]) as file:
    levels = [one["experiment"]["value"] for one in json.load(file)["experiments"]]
print("levels in the export:", levels)
assert levels == [1, 2]
PYTHON
echo "AS SEEN: the level above the limit is in the export only"
