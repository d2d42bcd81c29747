#!/usr/bin/env bash
# Runs gateway and cuobjtest on NVIDIA's cuObject libraries without a NIC, on the verbs facade of the
# software SDK (sys/soft/verbs), against the software SDK and against each other.
#
#   scripts/test-vendor.sh SDK_DIR
#
# SDK_DIR is an SDK prefix or a library directory with libcuobjserver.so.1, libcuobjclient.so.1 and what
# they need beside them (libcufile.so.0, libcufile_rdma.so.1); nothing of them is part of this project. The
# programs are built once against SDK_DIR's headers, or the software SDK's where it has none, and linked
# by soname; the loader's path then exchanges the libraries.
#
# What is done in each pairing: objects of 1 byte to 1 GiB, 2 GiB in parts, ranges, 64 clients at once,
# checksums compared; a wrong DC key, changed tokens, a killed client, failures in the middle of full
# channels. Before that the libraries alone (sys/soft/tests/interop.sh), and starts that must fail.
#
# CARGO_TARGET_DIR is honoured; LARGEST (default 1GiB) and PARTS (2GiB) make a shorter run.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$ROOT"

if [ $# -ne 1 ] || [ "${1#-}" != "$1" ]; then
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2
    [ $# -gt 0 ] || die "no SDK_DIR: NVIDIA's libraries are not part of this project, name a folder with a copy of them"
    exit 2
fi
[ -d "$1" ] || die "SDK_DIR $1 is not a directory"
VENDOR=
for folder in "$1" "$1"/lib64 "$1"/lib "$1"/lib/"$(uname -m)" "$1"/targets/*-linux/lib; do
    if [ -e "$folder/libcuobjserver.so.1" ] && [ -e "$folder/libcuobjclient.so.1" ]; then VENDOR=$(cd "$folder" && pwd); break; fi
done
[ -n "$VENDOR" ] || die "no libcuobjserver.so.1 with libcuobjclient.so.1 in $1 (looked in it, lib64, lib, lib/$(uname -m), targets/*-linux/lib)"

install_packages "${PACKAGES_TEST[@]}" libnuma1 libibverbs1 librdmacm1 ibverbs-providers valgrind
need_rust

WORK=$(mktemp -d)
GATEWAY=
SUMMARY=()
passed() { SUMMARY+=("ok    $1"); printf 'ok    %s\n' "$1"; }
cleanup() {
    if [ -n "$GATEWAY" ]; then kill "$GATEWAY" 2>/dev/null && wait "$GATEWAY" 2>/dev/null; fi
    rm -rf "$WORK"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say "what the shim relies on"
scripts/check-sdk.sh "$VENDOR" | sed '/^ok /d'

say "the libraries alone, in all pairings"
sys/soft/tests/interop.sh "$VENDOR" "$WORK/interop"

say "building against the libraries"
INCLUDE=$WORK/interop/sdk/include
for folder in "$1/include" "$VENDOR/../include" "$VENDOR/../../include"; do
    if [ -e "$folder/cuobjserver.h" ] && [ -e "$folder/cuobjclient.h" ]; then INCLUDE=$(cd "$folder" && pwd); break; fi
done
echo "headers: $INCLUDE"
# A folder of its own, so that the usual build is not made anew, and a place that stays, so that this one is not.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$ROOT/target}/vendor
mkdir -p "$CARGO_TARGET_DIR/headers"
cp "$INCLUDE"/*.h "$CARGO_TARGET_DIR/headers/"
CUOBJ_PROVIDER=nvidia CUOBJ_INCLUDE_DIR=$CARGO_TARGET_DIR/headers CUOBJ_LIB_DIR=$VENDOR CUOBJ_RPATH=0 \
    cargo build --locked --release --bins --quiet
BIN=$CARGO_TARGET_DIR/release
LD_LIBRARY_PATH=$VENDOR "$BIN/vgwrdma" --version

# --- which library a program gets

SOFT=$WORK/interop/sdk/lib
FACADE=$WORK/interop/verbs
# server_env WHOSE, client_env WHOSE: set ENV to the environment of a program on that library.
server_env() {
    local path=$SOFT:$VENDOR
    [ "$1" = soft ] || path=$VENDOR
    ENV=("LD_LIBRARY_PATH=$FACADE:$path")
}
# Only the client opens the libraries of verbs by name, and reads /proc/modules.
client_env() {
    local path=$SOFT:$VENDOR preload=
    [ "$1" = soft ] || { path=$VENDOR preload="$FACADE/libibverbs.so.1 $FACADE/libprocmodules.so"; }
    ENV=("LD_LIBRARY_PATH=$FACADE:$path" "LD_PRELOAD=$preload" "CUFILE_ENV_PATH_JSON=$WORK/cuobj.json")
}

# --- starts that must fail: no facade, so no RDMA device has the address (TEST-NET-1, RFC 5737)

export ROOT_ACCESS_KEY_ID=vendor-access
ROOT_SECRET_ACCESS_KEY=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
export ROOT_SECRET_ACCESS_KEY
export AWS_ACCESS_KEY_ID=$ROOT_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY=$ROOT_SECRET_ACCESS_KEY
DC_KEY=0x$(od -An -N4 -tx4 /dev/urandom | tr -d ' \n')
export VGWRDMA_DC_KEY=$DC_KEY
cat >"$WORK/cuobj.json" <<JSON
{ "properties": { "rdma_dev_addr_list": ["127.0.0.1"], "allow_compat_mode": true, "rdma_peer_type": "dmabuf",
                  "rdma_dc_key": "$DC_KEY" } }
JSON
mkdir "$WORK/empty"
GATEWAY_FLAGS=(--port 127.0.0.1:0 --metrics-port 127.0.0.1:0 --rdma-dc-key "$DC_KEY" --pool-buf-count 1)

say "starts without an RDMA device"
# refused WHAT STATUS WORD... -- COMMAND...: it ends with that status, and its last line has all words
refused() {
    local what=$1 status=$2 got=0 word words=()
    shift 2
    while [ "$1" != -- ]; do words+=("$1"); shift; done
    shift
    (cd "$WORK" && timeout 180 "$@") >"$WORK/out" 2>&1 || got=$?
    [ "$got" -eq "$status" ] || { tail -n 40 "$WORK/out" >&2; die "$what: ended with $got instead of $status"; }
    for word in "${words[@]}"; do
        grep -v '^==' "$WORK/out" | tail -n 1 | grep -qF -- "$word" || { cat "$WORK/out" >&2; die "$what: the last line does not name $word"; }
    done
    passed "$what: $(grep -v '^==' "$WORK/out" | tail -n 1)"
}
START=("$BIN/vgwrdma" --quiet "${GATEWAY_FLAGS[@]}" --pool-buf-size 16MiB --rdma-ip 192.0.2.1 posix "$WORK/empty")
refused "gateway" 1 192.0.2.1 libcuobjserver.so -- env "LD_LIBRARY_PATH=$VENDOR" "${START[@]}"
# 99 would be a bad access, or memory that nothing refers to any more.
refused "gateway under valgrind" 1 192.0.2.1 libcuobjserver.so -- env "LD_LIBRARY_PATH=$VENDOR" \
    valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite "${START[@]}"
# --- the gateway of a pairing

# start WHOSE FLAG...: a gateway on that server library. Neither MD5 nor the disk is under test here.
start() {
    local whose=$1
    shift
    rm -rf "$WORK/data"
    mkdir "$WORK/data"
    server_env "$whose"
    env "${ENV[@]}" "$BIN/vgwrdma" "${GATEWAY_FLAGS[@]}" --pool-buf-size 256MiB --rdma-ip 127.0.0.1 "$@" \
        posix --durability none --etag checksum "$WORK/data" >"$WORK/gateway.log" 2>&1 &
    GATEWAY=$!
    for _ in $(seq 300); do
        [ -n "$(announced listening)" ] && [ -n "$(announced metrics)" ] && break
        kill -0 "$GATEWAY" 2>/dev/null || { cat "$WORK/gateway.log" >&2; die "the gateway on the $whose server did not start"; }
        sleep 0.1
    done
    S3=http://$(announced listening)
    METRICS=http://$(announced metrics)/metrics
}
announced() { sed -n "s/.*$1 on \(http:\/\/\)\{0,1\}\(127\.0\.0\.1:[0-9]*\).*/\2/p" "$WORK/gateway.log" | head -n 1; }
sample() { curl -fsS "$METRICS" | awk -v name="vgwrdma_$1" '$1 == name { print $2 }'; }
# at_rest: nothing is in flight, leased or lost; waits for what a dead client has left behind
at_rest() {
    local busy=
    for _ in $(seq 300); do
        busy=$(curl -fsS "$METRICS" | awk '/^vgwrdma_engine_(operations_in_flight|operations_queued|transfers_running|transfers_waiting|chunks\{state="(leased|quarantined|lost)"\})/ && $2 != 0')
        [ -n "$busy" ] || return 0
        sleep 0.1
    done
    die "the gateway is not at rest: $busy"
}
stop() {
    at_rest
    kill -TERM "$GATEWAY"
    local status=0
    wait "$GATEWAY" || status=$?
    GATEWAY=
    [ "$status" -eq 0 ] || { tail -n 40 "$WORK/gateway.log" >&2; die "the gateway ended with status $status"; }
    if grep -nE 'softverbs:|panicked' "$WORK/gateway.log" >&2; then die "the gateway broke a rule of verbs, or panicked"; fi
    [ "$(find "$WORK/data" -path '*/.sgwtmp/*' ! -path '*/locks/*' -type f | wc -l)" -eq 0 ] || die "temporary files remain"
}
# run WHOSE WHAT FLAG...: cuobjtest on that client library; it has to verify everything
run() {
    local whose=$1 what=$2
    shift 2
    client_env "$whose"
    env "${ENV[@]}" "$BIN/cuobjtest" -endpoint "$S3" --memory host --quiet "$@" >"$WORK/out" 2>&1 ||
        { cat "$WORK/out" >&2; tail -n 20 "$WORK/gateway.log" >&2; die "$what failed"; }
    passed "$what: $(grep -m 1 OVERALL "$WORK/out" || tail -n 1 "$WORK/out")"
}

say "clients that cannot start"
start soft
CLIENT=("$BIN/cuobjtest" -endpoint "$S3" -size 1MiB --memory host)
sed 's/127\.0\.0\.1/192.0.2.1/' "$WORK/cuobj.json" >"$WORK/nowhere.json"
refused "client without a device" 3 cuObject -- env "LD_LIBRARY_PATH=$VENDOR" \
    "LD_PRELOAD=$FACADE/libprocmodules.so" "CUFILE_ENV_PATH_JSON=$WORK/nowhere.json" "${CLIENT[@]}"
refused "client where /proc/modules does not open" 3 "no answer within" -- env "LD_LIBRARY_PATH=$VENDOR" PROC_MODULES=absent \
    "LD_PRELOAD=$FACADE/libprocmodules.so" "CUFILE_ENV_PATH_JSON=$WORK/nowhere.json" "${CLIENT[@]}"
stop

LARGEST=${LARGEST:-1GiB} PARTS=${PARTS:-2GiB}
pairing() { # server client
    local pair="$1 server, $2 client" size status
    say "$pair"
    start "$1"
    for size in 1 4097 1MiB 64MiB; do
        run "$2" "$pair: $size" -size "$size" -n 3
    done
    run "$2" "$pair: $LARGEST" -size "$LARGEST" -n 1
    run "$2" "$pair: range 12345-8400000 of 9MiB" -size 9MiB -n 2 --range 12345-8400000
    run "$2" "$pair: 40MiB in parts of 7MiB" -size 40MiB -n 2 --multipart 7MiB
    run "$2" "$pair: $PARTS in parts of 256MiB" -size "$PARTS" -n 1 --multipart 256MiB
    run "$2" "$pair: 64 clients" -size 1MiB -n 4 --concurrency 64
    run "$2" "$pair: three X-CuObj headers" -size 1MiB -n 1 --legacy-headers
    # The lists of parts are such bodies too.
    [ "$(sample 'http_body_bytes_total{direction="in"}')" -lt 65536 ] || die "$pair: upload bodies went over HTTP"

    status=0
    client_env "$2"
    env "${ENV[@]}" VGWRDMA_DC_KEY=0x1 "$BIN/cuobjtest" -endpoint "$S3" --memory host -size 1MiB -n 1 --attempts 1 \
        >"$WORK/out" 2>&1 || status=$?
    [ $status -eq 1 ] || { cat "$WORK/out" >&2; die "$pair: with a wrong DC key cuobjtest ended with $status"; }
    passed "$pair: a wrong DC key fails: $(tail -n 1 "$WORK/out" | cut -c 1-160)"

    env "${ENV[@]}" /usr/bin/python3 tests/forged_tokens.py "$S3" "$WORK/interop/interop-client" >"$WORK/out" 2>&1 ||
        { cat "$WORK/out" >&2; die "$pair: changed tokens"; }
    passed "$pair: changed tokens and a dead client's: $(grep -c '^ok ' "$WORK/out") checks"

    env "${ENV[@]}" "$BIN/cuobjtest" -endpoint "$S3" --memory host --quiet -size 64MiB -n 1000 --concurrency 8 >/dev/null 2>&1 &
    local victim=$!
    sleep 3
    kill -KILL $victim
    wait $victim 2>/dev/null || true
    at_rest
    run "$2" "$pair: after a client was killed" -size 16MiB -n 2
    stop

    # Every 150th operation fails with up to sixteen in flight on one of two channels: those behind it are
    # flushed, and the reset of the queue pair never reports some of them.
    CUOBJ_SOFT_FAULT="status:every=150,code=12" start "$1" --rdma-num-dcis 2 --rdma-channels 2 --rdma-chunk-size 64KiB
    run "$2" "$pair: failures in full channels" -size 4MiB -n 4 --concurrency 16 --attempts 10
    at_rest
    [ "$(sample 'engine_completions_failed_total{status="IBV_WC_RETRY_EXC_ERR"}')" -gt 0 ] || die "$pair: nothing failed"
    passed "$pair: … $(sample 'engine_completions_failed_total{status="IBV_WC_RETRY_EXC_ERR"}') failed, $(sample 'engine_operations_retried_total') submitted again, at rest nothing is lost"
    stop
}
pairing soft soft
pairing vendor soft
pairing soft vendor
pairing vendor vendor

say "summary"
printf '%s\n' "${SUMMARY[@]}"
