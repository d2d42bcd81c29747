# Shared by the scripts of this folder: packages, messages, the project's root. Sourced, not run.
# shellcheck shell=bash disable=SC2034

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export ROOT

say() { printf '\n== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# What each job needs from Debian. The C++ compiler builds the shim and the software SDK; libclang
# lets the bindings be made anew from wrapper.h (without it the checked-in ones serve).
PACKAGES_BUILD=(g++ libclang-dev)
PACKAGES_DEMO=("${PACKAGES_BUILD[@]}" awscli curl)
# The verbs facade of the software SDK is tested where the headers of rdma-core are.
PACKAGES_TEST=("${PACKAGES_BUILD[@]}" python3-boto3 curl libibverbs-dev librdmacm-dev pkg-config shellcheck
    util-linux e2fsprogs btrfs-progs xfsprogs)

# install_packages NAME...: installs what is missing, without prompts; needs root or sudo only then.
install_packages() {
    local missing=() name
    for name in "$@"; do
        dpkg-query -W -f='${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed || missing+=("$name")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    command -v apt-get >/dev/null || die "these packages are missing and there is no apt-get: ${missing[*]}"
    local sudo=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "installing ${missing[*]} needs root: run this as root, or install them first"
        sudo=(sudo)
    fi
    say "installing ${missing[*]}"
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq update
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "${missing[@]}" >/dev/null
}

# need_rust: cargo on the PATH, also where rustup put it but the shell does not know yet.
need_rust() {
    command -v cargo >/dev/null || PATH="$HOME/.cargo/bin:$PATH"
    command -v cargo >/dev/null || die "cargo is missing: install Rust 1.92 or newer (https://rustup.rs), then run this again"
}

# --- a gateway of a script's own, on a free loopback port

# start_gateway BINARY LOG ARGUMENT...: starts it and waits until it listens; sets GATEWAY to its
# process and S3 to its URL.
start_gateway() {
    local binary=$1 log=$2 address
    shift 2
    "$binary" --port 127.0.0.1:0 "$@" >"$log" 2>&1 &
    GATEWAY=$!
    for _ in $(seq 100); do
        address=$(sed -n 's/.*listening on \(127\.0\.0\.1:[0-9]*\).*/\1/p' "$log" | head -n 1)
        [ -n "$address" ] && { S3=http://$address; return 0; }
        kill -0 "$GATEWAY" 2>/dev/null || break
        sleep 0.1
    done
    cat "$log" >&2
    die "the gateway did not start"
}

# stop_gateway: ends it, when it runs.
stop_gateway() {
    [ -n "${GATEWAY:-}" ] || return 0
    kill "$GATEWAY" 2>/dev/null || true
    wait "$GATEWAY" 2>/dev/null || true
    GATEWAY=
}
