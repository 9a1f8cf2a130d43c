#!/usr/bin/env bash
# stages.sh STAGE... runs "make test-STAGE" for each, goes on after a failure,
# and ends with a table of the times.
set -uo pipefail
cd "$(dirname "$0")/.."

passed=0 failed=0 table=
for stage in "$@"; do
	printf '\n=== %s\n' "$stage"
	start=$EPOCHREALTIME
	if make "test-$stage"; then verdict=passed passed=$((passed + 1)); else verdict=FAILED failed=$((failed + 1)); fi
	took=$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
	printf '=== %s %s in %s s\n' "$stage" "$verdict" "$took"
	table+=$(printf '%-10s %-7s %9s s' "$stage" "$verdict" "$took")$'\n'
done
printf '\n%s' "$table"
printf '%-10s %-7s %9s s\n' total '' "$SECONDS"
((failed == 0)) || { echo "stages: $failed of $# failed" >&2; exit 1; }
