#!/usr/bin/env bash
# The main job on any machine: a gateway over a temporary directory, a stock S3 client and an RDMA
# client on it, every byte compared. Uses the software SDK, so no RDMA hardware is needed.
# Leaves nothing behind; exits non-zero on any mismatch. CARGO_TARGET_DIR is honoured.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$ROOT"

install_packages "${PACKAGES_DEMO[@]}"
need_rust

say "building (release)"
CUOBJ_PROVIDER=soft cargo build --locked --release --bins --quiet
BIN=${CARGO_TARGET_DIR:-$ROOT/target}/release

WORK=$(mktemp -d)
GATEWAY=
cleanup() {
    [ -n "$GATEWAY" ] && kill "$GATEWAY" 2>/dev/null && wait "$GATEWAY" 2>/dev/null
    rm -rf "$WORK"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# --- the gateway, on free loopback ports
mkdir "$WORK/data" "$WORK/home"
export ROOT_ACCESS_KEY_ID=demo-access
ROOT_SECRET_ACCESS_KEY=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
export ROOT_SECRET_ACCESS_KEY
"$BIN/vgwrdma" --port 127.0.0.1:0 --metrics-port 127.0.0.1:0 \
    --rdma-ip 127.0.0.1 --rdma-dc-key "0x$(od -An -N4 -tx4 /dev/urandom | tr -d ' \n')" \
    --pool-buf-size 256MiB --pool-buf-count 1 \
    posix "$WORK/data" >"$WORK/gateway.log" 2>&1 &
GATEWAY=$!

# value of a line "listening on ADDRESS" / "metrics on ADDRESS" of the gateway's log
announced() { sed -n "s/.*$1 on \(http:\/\/\)\{0,1\}\(127\.0\.0\.1:[0-9]*\).*/\2/p" "$WORK/gateway.log" | head -n 1; }
for _ in $(seq 100); do
    [ -n "$(announced listening)" ] && [ -n "$(announced metrics)" ] && break
    kill -0 "$GATEWAY" 2>/dev/null || { cat "$WORK/gateway.log" >&2; die "the gateway did not start"; }
    sleep 0.1
done
S3=http://$(announced listening)
METRICS=http://$(announced metrics)/metrics
