#!/usr/bin/env bash
# A nightly for any cron: check the config in the repository; when it misses an SLO (10) or became
# worse (12), look for a better one and leave it as a proposal. Exits with the check's code.
#
#   nightly.sh SPEC [RESULTS]
#
#   TUNE_ANYWAY=1   look for a better config whatever the check's answer is, e.g. once a week
#   TUNE_TIME=20m   time for that search; default: the spec's budget
#
# crontab: 17 2 * * *  cd /srv/models && nightly.sh my-model.yaml >> /var/log/tune-nightly.log 2>&1
set -uo pipefail

spec=${1:?usage: nightly.sh SPEC [RESULTS]}
results=${2:-results}

tune check "$spec" --output "$results"
checked=$?

case $checked in
  10 | 12) search=1 ;;
  0 | 11) search=${TUNE_ANYWAY:-} ;; # 11: else measure longer first
  4) # not ready: say what to fix
    search=
    tune doctor "$spec" --output "$results"
    ;;
  *) search= ;; # broken
esac
if [ -n "$search" ]; then
  tune run "$spec" --output "$results" --no-write --progress plain \
    ${TUNE_TIME:+--time-budget "$TUNE_TIME"}
  tuned=$?
  case $tuned in
    0 | 10 | 11) ;; # improved or kept; none meets the SLOs; none was confirmed
    *) [ "$checked" -ne 0 ] || checked=$tuned ;;
  esac
fi
exit "$checked"
