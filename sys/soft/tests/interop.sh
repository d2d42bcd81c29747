#!/bin/sh
# Runs NVIDIA's server and client libraries without a NIC, on the verbs facade, against the software
# SDK's and against each other: the same programs, with the libraries exchanged. interop/ holds the contract
# (results, statuses, what is lost), dropin/ uses the classes as other projects do.
#
#   interop.sh VENDOR_LIB_DIR [BUILD_DIR]
#
# VENDOR_LIB_DIR holds libcuobjserver.so.1, libcuobjclient.so.1, libcufile.so.0, libcufile_rdma.so.1
# (x86-64, 1.2.0; nothing of them is part of this project). They also need libnuma1.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
soft=$(dirname "$here")
vendor=$(cd "${1:?usage: interop.sh VENDOR_LIB_DIR [BUILD_DIR]}" && pwd)
build=${2:-}
if [ -z "$build" ]; then
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
fi
mkdir -p "$build"
build=$(cd "$build" && pwd)
cxx=${CXX:-c++}

"$soft/build-shared.sh" "$build/sdk"
"$soft/verbs/build.sh" "$build/verbs"
for program in server client; do
    $cxx -std=c++17 -O1 -g -I"$build/sdk/include" -I"$here" "$here/interop/$program.cc" \
        -o "$build/interop-$program" -L"$build/sdk/lib" -lcuobjserver -lcuobjclient -lpthread
done
for side in server client; do
    $cxx -std=c++17 -O1 -g -I"$build/sdk/include" "$here/dropin/$side.cc" \
        -o "$build/dropin-$side" -L"$build/sdk/lib" "-lcuobj$side"
done
settings='"rdma_dev_addr_list": ["127.0.0.1"], "allow_compat_mode": true, "rdma_peer_type": "dmabuf"'
echo "{ \"properties\": { $settings } }" > "$build/cuobj.json"
echo "{ \"properties\": { $settings, \"rdma_dc_key\": \"0x1234567\" } }" > "$build/dropin.json"

# Each program loads both libraries, so what is exchanged is one file on the loader's path.
libraries() { # whose_server whose_client
    folder=$build/path-$1-$2
    mkdir -p "$folder"
    for pair in "$1 libcuobjserver.so.1" "$2 libcuobjclient.so.1"; do
        set -- $pair
        case $1 in
            soft) ln -sf "$build/sdk/lib/$2" "$folder/$2" ;;
            vendor) ln -sf "$vendor/$2" "$folder/$2" ;;
        esac
    done
    echo "$folder:$build/verbs:$vendor"
}

# The vendor's client opens the verbs libraries by name, so the facade is preloaded for it.
preload="$build/verbs/libibverbs.so.1 $build/verbs/libprocmodules.so"
run() { # whose_server whose_client path
    server_path=$(libraries "$1" soft)
    client_path=$(libraries soft "$2")
    client_preload=
    [ "$2" = soft ] || client_preload=$preload
    echo "interop: $1 server, $2 client, $3"
    (cd "$build" && CUOBJ_SOFT_PATH=$3 LD_LIBRARY_PATH=$server_path timeout 120 ./interop-server $((8 << 20)) \
        env CUFILE_ENV_PATH_JSON="$build/cuobj.json" LD_LIBRARY_PATH="$client_path" LD_PRELOAD="$client_preload" \
        ./interop-client $((8 << 20)))
    (cd "$build" && CUOBJ_SOFT_PATH=$3 CUFILE_ENV_PATH_JSON="$build/dropin.json" LD_LIBRARY_PATH="$client_path" \
        LD_PRELOAD="$client_preload" timeout 120 ./dropin-client \
        env LD_LIBRARY_PATH="$server_path" LD_PRELOAD= ./dropin-server)
}
for path in auto tcp; do
    run soft soft $path
    run vendor soft $path
    run soft vendor $path
    run vendor vendor $path
done
echo "interop: passed"
