#!/usr/bin/env bash
# tagged.sh TAG PREFIX [ARGUMENT...] runs the tests that stand in files built only
# with TAG and whose names begin with PREFIX ("" for all); arguments go to go test.
#
# Only those tests, so that a stage does not repeat the untagged ones beside them.
set -euo pipefail
cd "$(dirname "$0")/.."
tag=$1 prefix=$2
shift 2

declare -A packages=()
names=
while IFS= read -r file; do
	found=$(sed -nE "s/^func ((Test|Fuzz|Example)[A-Za-z0-9_]*)\(.*/\1/p" "$file" | grep -v '^TestMain$' | grep "^$prefix" || true)
	[[ -n $found ]] || continue
	packages[$(dirname "$file")]=1
	names+=$found$'\n'
done < <(find . \( -name '.?*' -o -name node_modules \) -prune -o -name '*_test.go' -print | sort | xargs -r grep -lE "^//go:build .*\b$tag\b")

if ((${#packages[@]} == 0)); then
	echo "no test ${prefix:+named $prefix… }carries the tag $tag"
	exit 0
fi
exec go test -count=1 -tags "$tag" -run "^($(sort -u <<<"${names%$'\n'}" | paste -sd'|'))\$" "$@" $(printf '%s\n' "${!packages[@]}" | sort)
