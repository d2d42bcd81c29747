#!/usr/bin/env bash
# Builds one program in release mode and says what it was linked with.
#
#   scripts/build.sh vgwrdma          the gateway: needs no CUDA
#   scripts/build.sh cuobjtest-gpu    the client for GPU and host memory, on NVIDIA's cuObject client
#   scripts/build.sh cuobjtest-host   the client on whatever cuObject client there is
#
# CUOBJ_SDK_DIR (or CUOBJ_INCLUDE_DIR and CUOBJ_LIB_DIR) names NVIDIA's SDK, CUOBJ_PROVIDER=nvidia|soft
# forces one. cuobjtest-gpu asks for NVIDIA's SDK unless CUOBJ_PROVIDER=soft is set.
# The result is copied to OUT (default: the build folder). PROFILE is the Cargo profile (default: release).
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$ROOT"

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
[ $# -eq 1 ] || usage

case $1 in
    vgwrdma) binary=vgwrdma features=server ;;
    cuobjtest-gpu) binary=cuobjtest features=client; export CUOBJ_PROVIDER=${CUOBJ_PROVIDER:-nvidia} ;;
    cuobjtest-host) binary=cuobjtest features=client ;;
    -h | --help) usage ;;
    *) printf 'error: unknown target %s\n\n' "$1" >&2; usage ;;
esac

need_rust
command -v "${CXX:-c++}" >/dev/null || die "no C++ compiler: install g++ (Debian) or gcc-c++ (Rocky), or set CXX"
if [ -n "${CUOBJ_SDK_DIR:-}" ] && [ ! -d "$CUOBJ_SDK_DIR" ]; then
    die "CUOBJ_SDK_DIR=$CUOBJ_SDK_DIR is not a directory"
fi

profile=${PROFILE:-release}
cargo build --locked --profile "$profile" --no-default-features --features "$features" --bin "$binary"
[ "$profile" != dev ] || profile=debug
built=${CARGO_TARGET_DIR:-$ROOT/target}/$profile/$binary
if [ -n "${OUT:-}" ]; then
    install -D -m 0755 "$built" "$OUT/$binary"
    built=$OUT/$binary
fi
# Linked by soname alone, it runs here only where the loader finds the SDK's libraries.
sdk=${CUOBJ_SDK_DIR:-/nonexistent}
for dir in "${CUOBJ_LIB_DIR:-/nonexistent}" "$sdk"/lib64 "$sdk"/lib "$sdk/lib/$(uname -m)" "$sdk"/targets/*-linux/lib; do
    if [ -d "$dir" ]; then LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$dir; fi
done
version=$(LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-} "$built" --version) || die "$built does not run here"
printf '\nbuilt %s\n%s\n' "$built" "$version"
