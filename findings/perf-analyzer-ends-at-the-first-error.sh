#!/usr/bin/env bash
# perf_analyzer 2.51.0: a single request that the model answers with an error ends the whole measurement
# with exit code 99, without a report and without an export. The share of errors of a model that fails
# now and then cannot be measured with it, nor the latency of the other requests.
# Seen: a model that answers each 150th request with an error: "Failed to maintain requested inference
# load", the error's text, exit code 99, no CSV and no export.
. "$(dirname "$0")/common.sh"
model mostly TYPE_FP32 "self.count = getattr(self, 'count', 0) + 1
            time.sleep(0.002)
            if self.count % 150 == 0:
                answers.append(pb.InferenceResponse(error=pb.TritonError('this one fails')))
                continue"
start_server
code=0
load -m mostly --concurrency-range 1 --measurement-interval 1000 -f "$tmp/report.csv" \
  --profile-export-file "$tmp/export.json" >"$tmp/report.txt" 2>&1 || code=$?
grep -v '^ *$' "$tmp/report.txt" | tail -n 4
[ "$code" -ne 0 ] || fail "perf_analyzer ends with exit code 0"
[ ! -s "$tmp/report.csv" ] || fail "perf_analyzer wrote a report"
[ ! -s "$tmp/export.json" ] || fail "perf_analyzer wrote an export"
echo "AS SEEN: the first error ended the measurement, exit code $code, without a result"
