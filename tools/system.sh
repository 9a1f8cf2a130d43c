#!/usr/bin/env bash
# system.sh NEED...: makes sure that commands and shared libraries are there.
#
# A need is the name of a command, or of a library when it contains ".so". What
# is missing is installed by apt-get when that exists and we are root; otherwise
# the script says what to install and fails.
set -euo pipefail

have() {
	case $1 in
	*.so*) { ldconfig -p 2>/dev/null || /sbin/ldconfig -p; } | grep -qF "$1" ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

package() {
	case $1 in
	nm | objdump) echo binutils ;;
	libnuma.so.1) echo libnuma1 ;;
	*) echo "$1" ;;
	esac
}

missing=()
for need in "$@"; do have "$need" || missing+=("$(package "$need")"); done
((${#missing[@]})) || exit 0

if command -v apt-get >/dev/null && [[ $(id -u) == 0 ]]; then
	echo "system: installing ${missing[*]}" >&2
	export DEBIAN_FRONTEND=noninteractive
	apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 || {
		apt-get update -qq
		apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
	}
else
	echo "system: please install these Debian packages (or what carries them on your system): ${missing[*]}" >&2
	exit 1
fi
