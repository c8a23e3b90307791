#!/usr/bin/env bash
# Create .venv with the versions of uv.lock. It needs Python 3.11 or newer and a network.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly UV_VERSION=0.13.7
readonly UV_VENV=.cache/uv-venv

say() { echo "setup: $*" >&2; }
die() {
    say "$*"
    exit 1
}

# Logs can be public, and the address of a package index can be private.
no_hosts() { sed -E 's#https?://[^/ ]+#<index>#g' >&2; }

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local name
    for name in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$name" >/dev/null && is_new_enough "$name"; then
            command -v "$name"
            return
        fi
    done
    return 1
}

install_python() {
    command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || return 1
    say "installing $* from Debian"
    apt-get update -qq 2>&1 | no_hosts
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" 2>&1 >/dev/null | no_hosts
}

install_uv() {
    # An interrupted run leaves an incomplete directory.
    rm -rf "$UV_VENV"
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        install_python python3-venv || die "this Python has no \`venv\`; install python3-venv, or uv, and run \`make setup\` again"
    fi
    say "installing uv $UV_VERSION into $UV_VENV"
    "$python" -m venv "$UV_VENV"
    "$UV_VENV/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION" 2>&1 | no_hosts
}

python=$(find_python) || {
    install_python python3 python3-venv && python=$(find_python)
} || die "no Python 3.11 or newer found; install python3 (and python3-venv), or name one with PYTHON=..."

if uv=$(command -v uv) && "$uv" --version >/dev/null 2>&1; then
    :
else
    uv=$UV_VENV/bin/uv
    [ "$("$uv" --version 2>/dev/null | cut -d' ' -f2)" = "$UV_VERSION" ] || install_uv
fi

say "syncing .venv with uv.lock ($("$python" --version), $("$uv" --version | cut -d' ' -f1,2))"
# An activated environment elsewhere must not receive our packages.
unset VIRTUAL_ENV
export UV_PROJECT_ENVIRONMENT=.venv UV_PYTHON_DOWNLOADS=never
# Bytecode is written here, because processes with PYTHONDONTWRITEBYTECODE would compile all modules at each start.
"$uv" sync --locked --quiet --compile-bytecode --python "$python" 2>&1 | no_hosts
.venv/bin/python -m compileall -q -j 0 src tests
say "done in $SECONDS s"
