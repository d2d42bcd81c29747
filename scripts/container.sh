#!/usr/bin/env bash
# The steps of the Dockerfile, one word each, so that they can be run and tested without a container
# engine (scripts/test-container.sh). Works on Debian and on Rocky Linux (RHEL 9 alike).
#
#   toolchain              compiler, headers of rdma-core, and Rust where there is none new enough
#   build TARGET           scripts/build.sh TARGET, the result to /out/bin
#   vendor-libs            the libraries of the SDK that it was built against, to /out/lib
#   runtime                what the programs need at run time, and the user that runs them
#   test                   scripts/test.sh, on a Debian base
#
# An SDK lies in /opt/cuobj (include/ and lib/ or lib64/), or where CUOBJ_SDK_DIR says. CUOBJ_PROVIDER is
# nvidia, soft, or auto: NVIDIA's where there is one, for vgwrdma and cuobjtest-host else the software SDK.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

MIN_RUST=1.92
RUST_VERSION=${RUST_VERSION:-1.95.0}

# install NAMES for this distribution: "debian names" "rocky names"
install_for() {
    if command -v apt-get >/dev/null; then
        # shellcheck disable=SC2086  # a list of names
        install_packages $1
        rm -rf /var/lib/apt/lists/*
    elif command -v dnf >/dev/null; then
        # shellcheck disable=SC2086
        dnf -y --setopt=install_weak_deps=False install $2 >/dev/null
        dnf clean all >/dev/null
    else
        die "neither apt-get nor dnf here: use a Debian or Rocky Linux base image"
    fi
}

rust_is_new_enough() {
    local have
    have=$(cargo --version 2>/dev/null | cut -d' ' -f2) && [ -n "$have" ] &&
        [ "$(printf '%s\n%s\n' "$MIN_RUST" "$have" | sort -V | head -n 1)" = "$MIN_RUST" ]
}

# sdk_libraries: the libraries of the SDK, one a line; nothing without one, or when it is not to be used
sdk_libraries() {
    local sdk=${CUOBJ_SDK_DIR:-/opt/cuobj} library
    [ "${CUOBJ_PROVIDER:-auto}" != soft ] || return 0
    for library in "$sdk"/{lib64,lib,targets/*-linux/lib}/lib{cuobj,cufile}*.so*; do
        if [ -e "$library" ]; then printf '%s\n' "$library"; fi
    done
}

case ${1:-} in
    toolchain)
        # NVIDIA's server header includes the headers of rdma-core, and its library is linked with these.
        install_for "g++ ca-certificates curl libibverbs-dev librdmacm-dev libnuma1" \
            "gcc-c++ ca-certificates rdma-core-devel numactl-libs"
        PATH=$HOME/.cargo/bin:$PATH
        if ! rust_is_new_enough; then
            curl --proto '=https' --tlsv1.2 -fsS https://sh.rustup.rs |
                sh -s -- -y --profile minimal --default-toolchain "$RUST_VERSION" --component clippy --component rustfmt
        fi
        ;;
    build)
        [ $# -eq 2 ] || die "container.sh build needs a target"
        if [ -n "$(sdk_libraries)" ]; then
            export CUOBJ_SDK_DIR=${CUOBJ_SDK_DIR:-/opt/cuobj} CUOBJ_PROVIDER=nvidia
        elif [ "${CUOBJ_PROVIDER:-auto}" = auto ]; then
            if [ "$2" = cuobjtest-gpu ]; then
                die "cuobjtest-gpu needs NVIDIA's SDK: give it with --build-context sdk=DIR, or ask for the software SDK with --build-arg CUOBJ_PROVIDER=soft"
            fi
            export CUOBJ_PROVIDER=soft
        fi
        # The libraries are found by the loader's path: they lie elsewhere in the run stage.
        CUOBJ_RPATH=0 OUT=/out/bin scripts/build.sh "$2"
        ;;
    vendor-libs)
        mkdir -p /out/lib
        sdk_libraries | while read -r library; do cp -a "$library" /out/lib/; done
        [ "${CUOBJ_PROVIDER:-auto}" != nvidia ] || [ -n "$(ls /out/lib)" ] ||
            die "no libcuobj*.so under ${CUOBJ_SDK_DIR:-/opt/cuobj} (looked in lib64, lib, targets/*-linux/lib)"
        ;;
    runtime)
        install_for "libstdc++6 libnuma1 libibverbs1 librdmacm1 ibverbs-providers ca-certificates curl" \
            "libstdc++ numactl-libs libibverbs librdmacm ca-certificates"
        id vgwrdma >/dev/null 2>&1 || useradd --system --user-group --uid 7070 --home-dir /nonexistent --shell /usr/sbin/nologin vgwrdma
        mkdir -p /data && chown vgwrdma: /data
        ldconfig
        ;;
    test) scripts/test.sh ;;
    *)
        sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2
        exit 2
        ;;
esac
