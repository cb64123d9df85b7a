#!/usr/bin/env bash
# perf-analyzer 2.60.0: the wheel's command `perf_analyzer` is a script that starts the program and
# ignores its exit code.
# Seen: where no server answers, the program ends with 99 and the command with 0.
. "$(dirname "$0")/common.sh"
python3 -c 'import platform, sys; sys.exit(tuple(map(int, platform.libc_ver()[1].split("."))) < (2, 38))' ||
  { echo "SKIPPED: the program needs glibc 2.38 or newer"; exit 0; }
install --no-deps perf-analyzer==2.60.0
program=$("$tmp/venv/bin/python" -c 'import perf_analyzer; print(perf_analyzer.__path__[0])')/bin/perf_analyzer
codes=""
for command in "$program" "$tmp/venv/bin/perf_analyzer"; do
  code=0
  "$command" -m none -i grpc -u 127.0.0.1:9 >/dev/null 2>&1 || code=$?
  codes="$codes $code"
done
echo "exit codes of the program and of the command:$codes"
[ "$codes" = " 99 0" ] || fail "exit codes"
echo "AS SEEN: the command ends with 0 where the program fails"
