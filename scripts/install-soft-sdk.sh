#!/usr/bin/env bash
# Installs the software SDK into PREFIX, in NVIDIA's file names, so that other programs that use
# cuObject build against it and run on it:
#   PREFIX/include/cuobj*.h, cufile.h    PREFIX/lib/libcuobjserver.so.1, libcuobjclient.so.1
#   PREFIX/lib/pkgconfig/cuobjserver.pc, cuobjclient.pc
#
#   scripts/install-soft-sdk.sh PREFIX
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

if [ $# -ne 1 ] || [ "${1#-}" != "$1" ]; then
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
fi
command -v "${CXX:-c++}" >/dev/null || die "no C++ compiler: install g++ (Debian) or gcc-c++ (Rocky), or set CXX"
mkdir -p "$1"
PREFIX=$(cd "$1" && pwd)
[ ! -e "$PREFIX/lib/libcuobjserver.so.1" ] || [ -e "$PREFIX/lib/.vgwrdma-soft-sdk" ] ||
    die "$PREFIX/lib holds another libcuobjserver.so.1: choose another prefix"

"$ROOT/sys/soft/build-shared.sh" "$PREFIX"
touch "$PREFIX/lib/.vgwrdma-soft-sdk"

mkdir -p "$PREFIX/lib/pkgconfig"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml" | head -n 1)
for side in server client; do
    cat >"$PREFIX/lib/pkgconfig/cuobj$side.pc" <<PC
prefix=$PREFIX
includedir=\${prefix}/include
libdir=\${prefix}/lib

Name: cuobj$side
Description: cuObject $side classes, software implementation of vgwrdma
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -lcuobj$side
PC
done
echo "installed the software SDK in $PREFIX; run programs with LD_LIBRARY_PATH=$PREFIX/lib"
