#!/bin/sh
# Builds the software SDK and its tests, and runs them.
#
#   run.sh [-s address,undefined|thread] [-g 1|2] [-b BUILD_DIR] [TEST...]
#
# TEST is a name without _test (transfer, errors, ...); none means all. -s builds with those
# sanitizers, -g chooses the generation of the class interface. Objects are kept in BUILD_DIR
# (default: a directory under TMPDIR that is removed at the end).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
soft=$(dirname "$here")
sanitizers= generation=1 build=
while getopts s:g:b: option; do
    case $option in
        s) sanitizers=$OPTARG ;;
        g) generation=$OPTARG ;;
        b) build=$OPTARG ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ -z "$build" ]; then
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
fi
mkdir -p "$build"

cxx=${CXX:-c++}
flags="-std=c++17 -O1 -g -Wall -Wextra -Wpedantic -Werror -DCUOBJ_SOFT_GENERATION=$generation"
[ -z "$sanitizers" ] || flags="$flags -fsanitize=$sanitizers -fno-sanitize-recover=all -fno-omit-frame-pointer"
flags="$flags -I$soft -I$soft/include -I$here ${CXXFLAGS:-}"
jobs=${JOBS:-$(getconf _NPROCESSORS_ONLN)}

# The verbs facade needs rdma-core's headers.
verbs=
if echo '#include <infiniband/mlx5dv.h>
#include <rdma/rdma_cma.h>' | $cxx -x c++ -fsyntax-only - 2> /dev/null; then
    verbs=$(cd "$soft" && ls verbs/*.cc)
fi

# Library units, then tests: "object source extra-flags" a line; one compiler at a time per job.
tests=${*:-$(cd "$here" && ls *_test.cc | sed 's/_test\.cc$//')}
if [ -z "$verbs" ]; then
    echo "run.sh: without the headers of rdma-core the verbs facade is not tested" >&2
    tests=$(echo "$tests" | grep -vx verbs || true)
fi
{
    awk '!/^#/ && NF == 2 { print $2 }' "$soft/sources.txt" | while read -r unit; do
        echo "$build/$(echo "$unit" | tr / _).o $soft/$unit -DCUOBJ_SOFT_BUILD"
    done
    for unit in $verbs; do
        echo "$build/$(echo "$unit" | tr / _).o $soft/$unit -Wno-invalid-offsetof"
    done
    for test in $tests; do echo "$build/${test}_test.o $here/${test}_test.cc"; done
} | COMPILE="$cxx $flags" xargs -P "$jobs" -L1 sh -c '
    object=$0 source=$1
    shift
    [ "$object" -nt "$source" ] && [ -z "$(find '"$soft"' -name "*.h" -newer "$object")" ] && exit 0
    $COMPILE "$@" -c "$source" -o "$object"'

rm -f "$build/libsoft.a"
(cd "$build" && ar rcs libsoft.a fabric_*.o sdk_*.o)

# The address space of a sanitized process is large; core files would be too.
ulimit -c 0
export ASAN_OPTIONS="detect_leaks=1:allocator_may_return_null=1:${ASAN_OPTIONS:-}"
export TSAN_OPTIONS="halt_on_error=1:allocator_may_return_null=1:second_deadlock_stack=1:die_after_fork=0:suppressions=$here/tsan.supp:${TSAN_OPTIONS:-}"
failed=
case " $(echo $tests) " in *" device "*)
    $cxx $flags -shared -fPIC -Wl,-soname,libcuda.so.1 "$here/fake_cuda.cc" -o "$build/libcuda.so.1" ;;
esac
for test in $tests; do
    facade=
    [ "$test" != verbs ] || facade=$(ls "$build"/verbs_*.cc.o)
    $cxx $flags "$build/${test}_test.o" $facade "$build/libsoft.a" -o "$build/${test}_test" -lpthread -ldl
    (cd "$build" && SOFT="$soft" timeout 300 "./${test}_test") || failed="$failed $test"
done
# The shared libraries once, without sanitizers, when everything is asked for.
if [ $# -eq 0 ] && [ -z "$sanitizers" ]; then "$here/shared.sh" "$build/shared" || failed="$failed shared"; fi
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
