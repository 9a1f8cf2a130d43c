#!/usr/bin/env bash
# concurrent.sh prints the packages worth the race detector: those that, or whose
# tests, import sync, sync/atomic, testing/synctest or goleak.
set -euo pipefail
cd "$(dirname "$0")/.."
go list -f '{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}
{{end}}{{range .TestImports}}{{$p}} {{.}}
{{end}}{{range .XTestImports}}{{$p}} {{.}}
{{end}}' ./... | awk '$2 ~ /^(sync|sync\/atomic|testing\/synctest|go\.uber\.org\/goleak)$/ && !seen[$1]++ { print $1 }'
