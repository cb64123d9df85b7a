#!/usr/bin/env bash
# perf_analyzer 2.51.0: `--profile-export-file` writes the texts of a tensor as the bytes that were
# sent, with the length of each but the first before it, in four bytes. A length of 128, which random
# texts have by default, is no UTF-8, so the file is no JSON.
# Seen: 'utf-8' codec can't decode byte 0x80
. "$(dirname "$0")/common.sh"
model text TYPE_STRING pass
start_server
load -m text --concurrency-range 1 --request-count 20 --profile-export-file "$tmp/out.json" \
  >"$tmp/out.txt"
python - "$tmp/out.json" <<'PYTHON' || fail "the export is JSON, or not there"
import json
import sys

with open(sys.argv[1], "rb") as file:
    content = file.read()
assert b'"experiments"' in content
try:
    json.loads(content.decode())
except UnicodeDecodeError as error:
    print(error)
else:
    sys.exit(1)
PYTHON
echo "AS SEEN: an export with texts is no JSON"
