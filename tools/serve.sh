#!/usr/bin/env bash
# serve.sh ENGINE MODEL PORT [ARGUMENT...] runs a real engine on 127.0.0.1:PORT in
# the foreground.
#
#   ENGINE    vllm, sglang or llama
#   MODEL     tiny (random Qwen3) or smollm2 (SmolLM2-135M-Instruct); also the
#             name under which it is served
#   ARGUMENT  passed on to the engine
#
# Nothing is installed here: see "make engines" and "make llama". This is the one place for the
# engines' flags.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
(($# >= 3)) || usage
engine=$1 model=$2 port=$3
shift 3

# Tokens of prompt and answer that one request may have. SmolLM2 was trained on
# 8,192.
context=16384
[[ $model == smollm2 ]] && context=8192

if [[ $engine == llama ]]; then
	case $model in
	tiny | smollm2) file=.cache/models/$model-gguf/model.gguf ;;
	*) usage ;;
	esac
	[[ -f $file && -x .cache/llama/llama-server ]] || { echo "serve: llama-server or the model $model is not installed: run 'make llama'" >&2; exit 1; }
	arguments=(
		--model "$file" --alias "$model" --host 127.0.0.1 --port "$port"
		# Four conversations at a time, whose tokens lie in one common cache.
		--parallel 4 --kv-unified --ctx-size "$context"
		--metrics --slots --no-webui
		--threads 1 # with more, they wait for each other in a spin
	)
	exec .cache/llama/llama-server "${arguments[@]}" "$@"
fi

case $model in
tiny) directory=.cache/models/tiny-qwen3 weights=dummy ;; # made from a fixed seed: the same in every run
smollm2) directory=.cache/models/smollm2-135m weights=auto ;;
*) usage ;;
esac
directory=$PWD/$directory
[[ -f $directory/config.json && -f .venv/vllm/stamp ]] || { echo "serve: $engine or the model $model is not installed: run 'make engines'" >&2; exit 1; }

# One thread: with more, OpenMP's threads spin at their barriers and starve each
# other when the cores are shared with the tests.
export OMP_NUM_THREADS=1
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 DO_NOT_TRACK=1

case $engine in
vllm)
	export VLLM_NO_USAGE_STATS=1
	export VLLM_CPU_KVCACHE_SPACE=1 # GiB
	export VLLM_CPU_OMP_THREADS_BIND=nobind
	export VLLM_CACHE_ROOT=$PWD/.cache/vllm
	arguments=(
		--model "$directory" --served-model-name "$model" --load-format "$weights"
		--host 127.0.0.1 --port "$port" --dtype bfloat16 --enforce-eager
		--max-model-len "$context"
		# Not below the context: a seeded request whose prompt is prefilled in
		# pieces ends the engine on CPU.
		--max-num-batched-tokens "$context"
		--max-num-seqs 8
		--block-size 32 # the smallest that the CPU's attention takes
		--enable-prompt-tokens-details # cached_tokens in usage
		--enable-scale-out             # the render endpoint
		--enable-auto-tool-choice --tool-call-parser hermes
	)
	exec .venv/vllm/bin/python -m vllm.entrypoints.openai.api_server "${arguments[@]}" "$@"
	;;
sglang)
	[[ -f .venv/sglang/stamp ]] || { echo "serve: sglang is not installed: run 'make engines'" >&2; exit 1; }
	export SGLANG_USE_CPU_ENGINE=1
	export TORCHDYNAMO_DISABLE=1 # torch.compile would want the real triton
	export PYTHONPATH=$PWD/tools/sglang-stubs:$PWD/.venv/sglang
	arguments=(
		--device cpu --model-path "$directory" --served-model-name "$model" --load-format "$weights"
		--host 127.0.0.1 --port "$port" --dtype bfloat16
		--context-length "$context" --max-total-tokens 65536 --max-running-requests 8
		--enable-cache-report # cached_tokens in usage
		--enable-metrics
		--tool-call-parser qwen25
		--sleep-on-idle # else the idle scheduler spins on a whole core
	)
	exec .venv/vllm/bin/python -m sglang.launch_server "${arguments[@]}" "$@"
	;;
*) usage ;;
esac
