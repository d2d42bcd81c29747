#!/usr/bin/env bash
# The main job on any machine: a gateway over a temporary directory, a stock S3 client and an RDMA
# client on it, every byte compared. Uses the software SDK, so no RDMA hardware is needed.
# Leaves nothing behind but, when one is named, the chart; exits non-zero on any mismatch.
# CARGO_TARGET_DIR is honoured.
# Usage: scripts/demo.sh [CHART.svg]
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
CHART=${1:+$(realpath -- "$1")}
cd "$ROOT"

install_packages "${PACKAGES_DEMO[@]}"
need_rust

say "building (release)"
CUOBJ_PROVIDER=soft cargo build --locked --release --bins --quiet
BIN=${CARGO_TARGET_DIR:-$ROOT/target}/release

WORK=$(mktemp -d)
SUMMARY=()
passed() { SUMMARY+=("ok    $1"); printf 'ok    %s\n' "$1"; }
cleanup() { stop_gateway; rm -rf "$WORK"; }
trap cleanup EXIT
trap 'exit 130' INT TERM

# --- the gateway, on free loopback ports
mkdir "$WORK/data" "$WORK/home"
export ROOT_ACCESS_KEY_ID=demo-access
ROOT_SECRET_ACCESS_KEY=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
export ROOT_SECRET_ACCESS_KEY
DC_KEY=0x$(od -An -N4 -tx4 /dev/urandom | tr -d ' \n')
start_gateway "$BIN/vgwrdma" "$WORK/gateway.log" --metrics-port 127.0.0.1:0 \
    --rdma-ip 127.0.0.1 --rdma-dc-key "$DC_KEY" \
    --pool-buf-size 256MiB --pool-buf-count 1 posix "$WORK/data"
METRICS=http://$(sed -n 's/.*metrics on \(127\.0\.0\.1:[0-9]*\).*/\1/p' "$WORK/gateway.log")/metrics

# --- the two clients
export AWS_ACCESS_KEY_ID=$ROOT_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY=$ROOT_SECRET_ACCESS_KEY
export AWS_DEFAULT_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true HOME=$WORK/home
export VGWRDMA_DC_KEY=$DC_KEY
stock() { aws --endpoint-url "$S3" "$@"; }
rdma() { "$BIN/cuobjtest" "$@" -endpoint "$S3"; }
# sample DIRECTION-COUNTER, for example: http_body in
sample() {
    curl -fsS "$METRICS" | awk -v name="vgwrdma_$1_bytes_total{direction=\"$2\"}" '$1 == name { print $2 }'
}
same() { cmp -- "$1" "$2" || die "$3: the bytes differ"; passed "$3"; }

# A real file: the gateway's own executable.
FILE=$BIN/vgwrdma
SIZE=$(stat -c %s "$FILE")

say "a stock S3 client uploads, the RDMA client downloads"
stock s3 mb s3://demo >/dev/null
stock s3 cp --only-show-errors "$FILE" s3://demo/from/stock
rdma cp s3://demo/from/stock "$WORK/by-rdma"
same "$FILE" "$WORK/by-rdma" "HTTP upload, RDMA download: $SIZE bytes equal"
same "$FILE" "$WORK/data/demo/from/stock" "the object is a plain file in the served directory"

say "the RDMA client uploads, a stock S3 client downloads"
before=$(sample http_body in)
rdma cp "$FILE" s3://demo/from/rdma
carried=$(($(sample http_body in) - before))
[ "$carried" -eq 0 ] || die "the RDMA upload sent $carried body bytes over HTTP"
stock s3 cp --only-show-errors s3://demo/from/rdma "$WORK/by-http"
same "$FILE" "$WORK/by-http" "RDMA upload, HTTP download: $SIZE bytes equal, 0 of them in an HTTP upload body"

# etag KEY: what the stock client is told
etag() { stock s3api head-object --bucket demo --key "$1" --query ETag --output text; }
rdma cp "$FILE" s3://demo/etag/rdma
stock s3api put-object --bucket demo --key etag/http --body "$FILE" >/dev/null
[ "$(etag etag/rdma)" = "$(etag etag/http)" ] || die "the ETag depends on the carrier"
passed "both carriers give the ETag $(etag etag/rdma), the file's MD5"

say "cuobjtest by RDMA"
in=$(sample http_body in) out=$(sample http_body out) moved=$(sample rdma in)
rdma -bucket demo -key bench/rdma -size 64MiB -n 5
in=$(($(sample http_body in) - in)) out=$(($(sample http_body out) - out)) moved=$(($(sample rdma in) - moved))
[ $((in + out)) -eq 0 ] || die "the RDMA run carried $in + $out body bytes over HTTP"
[ "$moved" -eq $((5 * 64 * 1024 * 1024)) ] || die "the gateway counts $moved bytes by RDMA"
passed "cuobjtest by RDMA: $moved bytes each way by RDMA, HTTP bodies carried $in in and $out out"

say "cuobjtest by standard S3"
in=$(sample http_body in) moved=$(sample rdma in)
rdma -bucket demo -key bench/http -size 64MiB -n 5 -std-s3
in=$(($(sample http_body in) - in)) moved=$(($(sample rdma in) - moved))
[ "$in,$moved" = "$((5 * 64 * 1024 * 1024)),0" ] || die "the standard run moved $in by HTTP, $moved by RDMA"
passed "cuobjtest by standard S3: $in bytes in HTTP bodies, $moved by RDMA"

say "a sweep over sizes, RDMA beside standard S3"
rdma -bucket demo -key bench/sweep -sweep 4KiB..16MiB -n 5 -warmup 1 -cleanup -plot "$WORK/sweep.svg"
# Two modes: PUT and GET throughput, median and 99th percentile of both latencies.
lines=$(grep -c '<polyline' "$WORK/sweep.svg")
[ "$lines" -eq 12 ] || die "the chart has $lines curves, not 12"
passed "a sweep of seven sizes, every byte verified, and its chart"
if [ -n "$CHART" ]; then
    cp -- "$WORK/sweep.svg" "$CHART"
    echo "the chart is $CHART"
else
    echo "name a file to keep the chart: scripts/demo.sh sweep.svg"
fi

kill -TERM "$GATEWAY"
wait "$GATEWAY" || die "the gateway ended with status $?"
GATEWAY=
left=$(find "$WORK/data/demo" -path '*/.sgwtmp/*' ! -path '*/locks/*' -type f | wc -l)
[ "$left" -eq 0 ] || die "$left temporary files remain in the served directory"
passed "the gateway ended cleanly and left no temporary data"

say "summary"
printf '%s\n' "${SUMMARY[@]}"
