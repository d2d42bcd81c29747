#!/bin/sh
# Checks the shared libraries: their names, what they export, and that programs which know nothing but what
# is installed (headers, pkg-config files, libraries) move data: one with both libraries, also compiled for
# a bare system without rdma-core's headers, and a server and a client (dropin/) with one each.
#
#   shared.sh [BUILD_DIR]
set -eu

here=$(cd "$(dirname "$0")" && pwd)
soft=$(dirname "$here")
build=${1:-}
if [ -z "$build" ]; then
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
fi
cxx=${CXX:-c++}
fail() { echo "shared: $*" >&2; exit 1; }

for generation in 1 2; do
    out=$build/sdk$generation
    rm -rf "$out"
    case $generation in
        1) "$soft/../../scripts/install-soft-sdk.sh" "$out" ;;
        2) "$soft/build-shared.sh" "$out" 2 ;;
    esac
    for name in "libcuobjserver.so.$generation" libcuobjclient.so.1; do
        readelf -d "$out/lib/$name" | grep -q "SONAME.*\[$name\]" || fail "soname of $name"
        # Nothing of the fabric or of the state behind the classes may be visible.
        if nm -DC --defined-only "$out/lib/$name" | grep -vE ' T (cuObjServer|cuObjClient|RDMAConnection)::' | grep -q .; then
            fail "$name exports more than the classes"
        fi
    done
    # The shim, compiled against what is installed, finds everything that it calls.
    "$soft/../../scripts/check-sdk.sh" "$out" > "$build/table" || { cat "$build/table"; fail "generation $generation"; }
    # As a program of somebody else would be built: installed headers and libraries only.
    for verbs in "" -DCUOBJ_SOFT_NO_VERBS; do
        $cxx -std=c++17 -O1 $verbs -I"$out/include" -I"$here" "$here/buffers_test.cc" \
            -o "$build/linked" -L"$out/lib" -lcuobjserver -lcuobjclient -lpthread
        LD_LIBRARY_PATH="$out/lib" "$build/linked" > /dev/null || fail "generation $generation"
    done
    for side in server client; do
        case $generation in
            1) flags=$(PKG_CONFIG_PATH="$out/lib/pkgconfig" pkg-config --cflags --libs "cuobj$side") ;;
            2) flags="-I$out/include -L$out/lib -lcuobj$side" ;;
        esac
        $cxx -std=c++17 -O1 -Wall -Wextra "$here/dropin/$side.cc" -o "$build/dropin-$side" $flags
    done
    CUOBJ_RDMA_DC_KEY=0x1234567 LD_LIBRARY_PATH="$out/lib" timeout 60 \
        "$build/dropin-client" "$build/dropin-server" || fail "drop-in programs, generation $generation"
done

# A library without the classes is told.
mkdir -p "$build/hollow"
echo 'int nothing;' | $cxx -x c++ -shared -fPIC - -o "$build/hollow/libcuobjserver.so.1"
if "$soft/../../scripts/check-sdk.sh" "$build/hollow" > "$build/table" 2>&1; then fail "a hollow library passed"; fi
grep -q '^MISSING  function  cuObjServer::poll' "$build/table" || fail "no missing function in the table"
if "$soft/../../scripts/check-sdk.sh" "$build/sdk2" "$build/sdk1" > "$build/table" 2>&1; then fail "2.x has the base class"; fi
grep -q '^MISSING  function  RDMAConnection::' "$build/table" || fail "no base class in the table"

# The functions of the vendor's 1.2.0 libraries that programs call, by their mangled names.
for symbol in \
    _ZN11cuObjServerC1EPKctj _ZN11cuObjServerC2EPKctj _ZN11cuObjServerC1EPKctj16cuObjRDMATunable \
    _ZN11cuObjServerD1Ev _ZN11cuObjServer15allocHostBufferEm _ZN11cuObjServer14registerBufferEPvm \
    _ZN11cuObjServer14registerBufferESt6vectorI23cuObjScatterGatherEntrySaIS1_EE \
    _ZN11cuObjServer16deRegisterBufferEP11rdma_buffer \
    _ZN11cuObjServer23getRDMABufferFromSgListEP11rdma_bufferSt6vectorI33cuObjScatterGatherEntryWithOffsetSaIS3_EE \
    _ZN11cuObjServer23putRDMABufferFromSgListEP11rdma_buffer \
    _ZN11cuObjServer15handleGetObjectERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEP11rdma_buffermmS7_jtmP13ibv_wc_statusPv \
    _ZN11cuObjServer15handleGetObjectERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEP11rdma_buffermmS7_tmP13ibv_wc_statusPv \
    _ZN11cuObjServer15handlePutObjectERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEP11rdma_buffermmS7_jtmP13ibv_wc_statusPv \
    _ZN11cuObjServer15handlePutObjectERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEP11rdma_buffermmS7_tmP13ibv_wc_statusPv \
    _ZN11cuObjServer4pollEP17cuObjAsyncEvent_sit _ZN11cuObjServer17allocateChannelIdEv \
    _ZN11cuObjServer13freeChannelIdEt _ZN11cuObjServer14setupTelemetryEbPSo \
    _ZN11cuObjServer17shutdownTelemetryEv _ZN11cuObjServer13setTelemFlagsEj \
    _ZN14RDMAConnectionC1EPKct _ZN14RDMAConnectionD1Ev \
    _ZN14RDMAConnection20initRDMAConfigParamsE16cuObjRDMATunable \
    _ZN14RDMAConnection21getConfigTunableParamEP21cuObjRDMATunableParam \
    _ZN11cuObjClientC1ER10CUObjIOOps15cuObjProto_enum _ZN11cuObjClientD1Ev \
    _ZN11cuObjClient21cuMemObjGetDescriptorEPvm _ZN11cuObjClient21cuMemObjPutDescriptorEPv \
    _ZN11cuObjClient33cuMemObjGetMaxRequestCallbackSizeEPv \
    _ZN11cuObjClient20cuMemObjGetRDMATokenEPvmm16cuObjOpType_enumPPc \
    _ZN11cuObjClient20cuMemObjPutRDMATokenEPc _ZN11cuObjClient20cuMemObjPutRDMATokenEPci \
    _ZN11cuObjClient6getCtxEPKv _ZN11cuObjClient8cuObjGetEPvS0_mll _ZN11cuObjClient8cuObjPutEPvS0_mll \
    _ZN11cuObjClient11isConnectedEv _ZN11cuObjClient13getMemoryTypeEPKv \
    _ZN11cuObjClient14setupTelemetryEbPSo _ZN11cuObjClient17shutdownTelemetryEv \
    _ZN11cuObjClient13setTelemFlagsEj _ZN11cuObjClient13setTelemFlagsEjj; do
    nm -D --defined-only "$build"/sdk1/lib/libcuobj*.so.1 | grep -q " T $symbol\$" || fail "no $symbol"
done
echo "shared: passed"
