#!/bin/sh
# Builds the verbs facade: one library under the names of libibverbs, libmlx5 and librdmacm.
#
#   build.sh OUT_DIR
#
# Needs rdma-core's headers (Debian: libibverbs-dev, librdmacm-dev). Put OUT_DIR on LD_LIBRARY_PATH.
# For NVIDIA's client library, which opens the libraries by name, also preload
# OUT_DIR/libibverbs.so.1 and OUT_DIR/libprocmodules.so.
set -eu

soft=$(cd "$(dirname "$0")/.." && pwd)
out=${1:?usage: build.sh OUT_DIR}
cxx=${CXX:-c++}
jobs=${JOBS:-$(getconf _NPROCESSORS_ONLN)}
flags="-std=c++17 -O2 -g -fPIC -fvisibility-inlines-hidden -Wall -Wextra -Wno-invalid-offsetof -I$soft ${CXXFLAGS:-}"

objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
mkdir -p "$out"
{ ls "$soft"/verbs/*.cc; ls "$soft"/fabric/*.cc; } |
    COMPILE="$cxx $flags" OBJECTS="$objects" xargs -P "$jobs" -I{} sh -c \
        '$COMPILE -c {} -o "$OBJECTS/$(basename "$(dirname {})")_$(basename {} .cc).o"'
$cxx -shared ${CXXFLAGS:-} -Wl,-soname,libibverbs.so.1 -Wl,-z,nodelete \
    -Wl,--version-script="$soft/verbs/exports.map" -o "$out/libibverbs.so.1" "$objects"/*.o -lpthread -ldl
for name in libmlx5.so.1 librdmacm.so.1 libibverbs.so libmlx5.so librdmacm.so; do
    ln -sf libibverbs.so.1 "$out/$name"
done
# A library of its own, because a function of libc can only be replaced without a symbol version.
$cxx $flags -shared "$soft/verbs/preload/proc_modules.cc" -o "$out/libprocmodules.so" -ldl
