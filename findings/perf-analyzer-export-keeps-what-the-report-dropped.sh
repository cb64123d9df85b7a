#!/usr/bin/env bash
# perf_analyzer 2.51.0: the report and its CSV are about the last three windows, which were stable;
# `--profile-export-file` has the requests of all windows since the start, and nothing in it says which
# of them counted. A percentile of the export is not that of the report.
# Seen: a model that takes 100 ms for its first 15 requests and 20 ms then: p99 in the CSV about 21 ms,
# requests of about 100 ms in the export.
. "$(dirname "$0")/common.sh"
model warming TYPE_FP32 "self.count = getattr(self, 'count', 0) + 1; time.sleep(0.1 if self.count <= 15 else 0.02)"
start_server
load -m warming --concurrency-range 1 --measurement-interval 500 --stability-percentage 10 \
  --max-trials 10 --percentile 99 -f "$tmp/report.csv" --profile-export-file "$tmp/export.json" \
  >"$tmp/report.txt"
python - "$tmp" <<'PYTHON' || fail "report and export agree"
import csv
import json
import sys

with open(f"{sys.argv[1]}/report.csv") as file:
    p99_ms = float(next(csv.DictReader(file))["p99 latency"]) / 1e3
with open(f"{sys.argv[1]}/export.json") as file:
    requests = json.load(file)["experiments"][0]["requests"]
slow = sum(one["response_timestamps"][-1] - one["timestamp"] > 80e6 for one in requests)
print(f"p99 in the CSV {p99_ms:.1f} ms; in the export {slow} of {len(requests)} took over 80 ms")
assert p99_ms < 40 and slow >= 5
PYTHON
echo "AS SEEN: the export keeps the windows that the report dropped"
