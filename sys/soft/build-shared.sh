#!/bin/sh
# Builds the software SDK as shared libraries with the vendor's names and ABI, so that programs
# compiled for NVIDIA's cuObject run without hardware.
#
#   build-shared.sh OUT_DIR [GENERATION]
#
# OUT_DIR gets lib/ and include/. GENERATION is 1 (default: libcuobjserver.so.1) or 2
# (libcuobjserver.so.2). CXX, CXXFLAGS, AR and the like are honoured; JOBS is the number of
# compilers at a time (default: the number of processors).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build-shared.sh OUT_DIR [GENERATION]}
generation=${2:-1}
case $generation in 1 | 2) ;; *) echo "build-shared.sh: GENERATION must be 1 or 2" >&2; exit 2 ;; esac
cxx=${CXX:-c++}
jobs=${JOBS:-$(getconf _NPROCESSORS_ONLN)}

objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
mkdir -p "$out/lib" "$out/include"

# -z nodelete: an agent's threads must not lose their code to dlclose().
common="-std=c++17 -O2 -g -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -Wall -Wextra"
common="$common -DCUOBJ_SOFT_BUILD -DCUOBJ_SOFT_GENERATION=$generation"

units() { awk -v want="$1" '/^#/ || NF < 2 { next } $1 == "both" || $1 == want { print $2 }' "$here/sources.txt"; }
object_of() { printf '%s/%s.o' "$objects" "$(printf %s "$1" | tr / _)"; }

# One compiler call per unit; a failed one makes xargs, and so the script, fail.
{ units server; units client; } | sort -u |
    CXX_COMMAND="$cxx $common ${CXXFLAGS:-}" HERE="$here" OBJECTS="$objects" \
        xargs -P "$jobs" -I{} sh -c '
            unit={}
            $CXX_COMMAND -I"$HERE" -I"$HERE/include" -c "$HERE/$unit" \
                -o "$OBJECTS/$(printf %s "$unit" | tr / _).o"'

link() { # library version units...
    library=$1 version=$2
    shift 2
    set -- $(for unit in "$@"; do object_of "$unit"; echo; done)
    $cxx -shared ${CXXFLAGS:-} ${LDFLAGS:-} -Wl,-soname,"$library.so.$version" -Wl,-z,nodelete \
        -Wl,-z,defs -Wl,--version-script="$here/exports-${library#libcuobj}.map" \
        -o "$out/lib/$library.so.$version" "$@" -lpthread -ldl
    ln -sf "$library.so.$version" "$out/lib/$library.so"
}
# Only the server's name changed with the second generation.
link libcuobjserver "$generation" $(units server)
link libcuobjclient 1 $(units client)

cp "$here"/include/*.h "$out/include/"
# A program compiled against the installed headers must see the shape the libraries were built in.
if [ "$generation" != 1 ]; then
    sed -i "s/^#define CUOBJ_SOFT_GENERATION 1$/#define CUOBJ_SOFT_GENERATION $generation/" \
        "$out/include/cuobj_soft_types.h"
fi
