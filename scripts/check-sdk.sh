#!/usr/bin/env bash
# Compares a cuObject SDK with what the shim relies on, and prints a table: exported functions, and the
# sizes of the classes and structures that are passed by value or made by the shim.
#
#   scripts/check-sdk.sh DIR          what the shim calls is there, and as large as it takes it to be
#   scripts/check-sdk.sh DIR OTHER    also: DIR exports every function of the classes that OTHER exports
#
# DIR and OTHER are library directories or SDK prefixes (lib64, lib or targets/*-linux/lib in them). A
# package with one of the two libraries is checked for that one. What the shim relies on is read from
# sys/shim, compiled against the headers of DIR (or of the directory above it), else against those of the
# software SDK in the library's generation. Sizes are compared where the library has debug information.
# Exit code: 0 nothing is missing, 1 something is, 2 usage.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

if [ $# -lt 1 ] || [ $# -gt 2 ] || [ "${1#-}" != "$1" ]; then
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
fi
CXX=${CXX:-c++}
for tool in "$CXX" nm readelf c++filt awk; do
    command -v "$tool" >/dev/null || die "$tool is missing: install g++ and binutils"
done

# library DIR server|client: the library's path, of the highest generation there is; nothing without one
library() {
    local folder file found=
    for folder in "$1" "$1"/lib64 "$1"/lib "$1"/targets/*-linux/lib; do
        for file in "$folder/libcuobj$2".so.[0-9]; do
            if [ -e "$file" ]; then found=$file; fi
        done
        if [ -n "$found" ]; then break; fi
    done
    if [ -n "$found" ]; then printf '%s\n' "$found"; fi
}
# functions LIBRARY: the mangled names of the functions that it exports of the classes which programs use.
# The libraries also export helpers of their telemetry (cuObjTelem_ostream, cuObjSpan, getSpan): the
# layout in public headers does not fit the 1.2.0 library, so that no program can be using them.
functions() {
    nm -D --defined-only "$1" |
        awk '$2 == "T" && $3 ~ /^_ZN(11cuObjServer|11cuObjClient|14RDMAConnection)/ { sub(/@.*/, "", $3); print $3 }' |
        sort -u
}
demangled() { printf '%s\n' "$1" | c++filt | sed 's/std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >/std::string/g'; }
# sizes FILE: "type bytes" for the structures and classes in its debug information
sizes() {
    readelf --wide --debug-dump=info "$1" 2>/dev/null | awk '
        function flush() { if (record && name != "" && size != "") print name, size }
        / Abbrev Number: / { flush(); record = /DW_TAG_(class|structure)_type/; name = size = "" }
        record && /DW_AT_name / { name = $NF }
        record && /DW_AT_byte_size / { size = $NF }
        END { flush() }' | sort -u
}

# Structures that both sides of the ABI lay out, and the classes that the shim makes. Behind its objects
# the shim leaves room, for libraries whose class is larger than their public header says (Roomy).
SHARED="cuObjRDMATunable cuObjAsyncEvent_s cuObjScatterGatherEntry cuObjScatterGatherEntryWithOffset CUObjIOOps cufileRDMAInfo"
MADE="cuObjServer cuObjClient"
ROOM=$(sed -n 's/.*kRoom = \([0-9]*\);/\1/p' "$ROOT/sys/shim/internal.h")
[ -n "$ROOM" ] || die "sys/shim/internal.h names no kRoom"

MISSING=0
row() { # verdict kind text
    case $1 in MISSING | DIFFERS) MISSING=$((MISSING + 1)) ;; esac
    printf '%-8s %-9s %s\n' "$1" "$2" "$3"
}

WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

# check_side DIR server|client
check_side() {
    local file include=() generation=1 header exported name expected found
    file=$(library "$1" "$2")
    if [ -z "$file" ]; then
        row absent library "libcuobj$2.so.N: not in $1, so the $2 is not checked"
        return 0
    fi
    CHECKED=$((CHECKED + 1))
    if [ "$2" = server ] && [ "${file##*.so.}" -ge 2 ]; then generation=2; fi
    # The client's name stayed the same: a second-generation member tells.
    if [ "$2" = client ] && functions "$file" | grep -q 'cuMemObjPutRDMATokenEPci$'; then generation=2; fi
    for header in "$1" "$(dirname "$file")/.." "$(dirname "$file")/../.."; do
        if [ -e "$header/include/cuobj$2.h" ]; then include=(-isystem "$header/include"); break; fi
    done
    row "$(readlink -f "$file" | sed 's/.*\.so\.//')" library "$file (soname $(readelf -d "$file" | sed -n 's/.*SONAME.*\[\(.*\)\].*/\1/p'), headers: ${include[1]:-the software SDK, generation $generation})"
    # Our own headers tell their generation by themselves where they are installed.
    if [ ${#include[@]} -eq 0 ]; then include=(-I "$ROOT/sys/soft/include" "-DCUOBJ_SOFT_GENERATION=$generation"); fi
    "$CXX" -std=c++17 -O0 -g -fPIC -I "$ROOT" -I "$ROOT/sys/shim" "${include[@]}" \
        -c "$ROOT/sys/shim/$2.cc" -o "$WORK/$2.o" || die "sys/shim/$2.cc does not compile against these headers"

    exported=$(functions "$file")
    for name in $(nm -u "$WORK/$2.o" | awk '{ print $2 }' | grep -E '^_ZN(11cuObjServer|11cuObjClient|14RDMAConnection)'); do
        if grep -qx -- "$name" <<<"$exported"; then found=ok; else found=MISSING; fi
        row "$found" function "$(demangled "$name")"
    done
    sizes "$WORK/$2.o" >"$WORK/expected"
    sizes "$file" >"$WORK/found"
    for name in $SHARED $MADE; do
        expected=$(awk -v name="$name" '$1 == name { print $2 }' "$WORK/expected")
        if [ -z "$expected" ]; then continue; fi
        found=$(awk -v name="$name" '$1 == name { print $2 }' "$WORK/found")
        if [ -z "$found" ]; then
            row unknown size "$name: $expected bytes in the header; the library has no debug information on it"
        elif [ "$found" = "$expected" ]; then
            row ok size "$name: $found bytes"
        elif [[ " $MADE " == *" $name "* ]] && [ "$found" -le $((expected + ROOM)) ]; then
            row ok size "$name: $found bytes, $expected in the header, $((expected + ROOM)) given by the shim"
        else
            row DIFFERS size "$name: $found bytes, $expected in the header"
        fi
    done
}

# check_against DIR OTHER server|client
check_against() {
    local ours theirs name count=0
    ours=$(library "$1" "$3")
    theirs=$(library "$2" "$3")
    if [ -z "$theirs" ]; then
        row absent library "libcuobj$3.so.N: not in $2, so nothing is asked of ours"
        return 0
    fi
    COMPARED=$((COMPARED + 1))
    row "$(readlink -f "$theirs" | sed 's/.*\.so\.//')" library "$theirs"
    if [ -n "$ours" ]; then functions "$ours" >"$WORK/ours"; else : >"$WORK/ours"; fi
    for name in $(functions "$theirs"); do
        count=$((count + 1))
        grep -qx -- "$name" "$WORK/ours" || row MISSING function "$(demangled "$name")"
    done
    [ $count -gt 0 ] || row MISSING function "none of the classes' functions is exported there: is it a cuObject library?"
    row "$count" function "exported there by the classes of libcuobj$3"
}

CHECKED=0
printf '%-8s %-9s %s\n' result what which
check_side "$1" server
check_side "$1" client
[ $CHECKED -gt 0 ] || die "no libcuobjserver.so.N or libcuobjclient.so.N in $1 (looked in it, lib64, lib, targets/*-linux/lib)"
if [ $# -eq 2 ]; then
    COMPARED=0
    check_against "$1" "$2" server
    check_against "$1" "$2" client
    [ $COMPARED -gt 0 ] || die "no libcuobjserver.so.N or libcuobjclient.so.N in $2"
fi
[ $MISSING -eq 0 ] || die "$MISSING of these are missing or differ"
echo "nothing is missing"
