#!/usr/bin/env bash
# perf_analyzer 2.51.0: with `--request-count`, throughput is the requests over a time that ends at a
# whole second after the last of them: the fewer there are, the less a model seems to answer.
# Seen: a model of 20 ms, one at a time: 44 to 49/s by its mean latency; 10/s with 10 requests, about 30/s
# with 60, 41/s or more with 400.
. "$(dirname "$0")/common.sh"
model slow TYPE_FP32 "time.sleep(0.02)"
start_server
for count in 10 60 400; do
  load -m slow --concurrency-range 1 --request-count "$count" -f "$tmp/$count.csv" >"$tmp/$count.txt"
  echo "$count requests: $(cut -d, -f2 "$tmp/$count.csv" | tail -n 1)/s"
done
python - "$tmp" <<'PYTHON' || fail "throughput does not depend on the count so"
import csv
import sys

rates = []
for count in (10, 60, 400):
    with open(f"{sys.argv[1]}/{count}.csv") as file:
        rates.append(float(next(csv.DictReader(file))["Inferences/Second"]))
assert rates[0] < 15 and 20 < rates[1] < 40 < rates[2] < 50, rates
PYTHON
echo "AS SEEN: few requests understate the throughput"
