#!/usr/bin/env bash
# The steps of the Dockerfile, one word each, so that they can be run and tested without a container
# engine. Works on Debian and on Rocky Linux (RHEL 9 alike).
#
#   toolchain              compiler, libclang, and Rust where there is none
#   build TARGET           scripts/build.sh TARGET, the result to /out/bin
#   vendor-libs            the vendor SDK's libraries named by CUOBJ_SDK_DIR, to /out/lib (nothing without it)
#   runtime                what the programs need at run time, and the user that runs them
#   test                   scripts/test.sh
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

case ${1:-} in
    toolchain)
        install_for "g++ libclang-dev ca-certificates curl git" "gcc-c++ clang-devel ca-certificates git"
        PATH=$HOME/.cargo/bin:$PATH
        if ! rust_is_new_enough; then
            curl --proto '=https' --tlsv1.2 -fsS https://sh.rustup.rs |
                sh -s -- -y --profile minimal --default-toolchain "$RUST_VERSION" --component clippy --component rustfmt
        fi
        ;;
    build)
        [ $# -eq 2 ] || die "container.sh build needs a target"
        OUT=/out/bin scripts/build.sh "$2"
        ;;
    vendor-libs)
        mkdir -p /out/lib
        if [ -n "${CUOBJ_SDK_DIR:-}" ]; then
            found=0
            for dir in "$CUOBJ_SDK_DIR"/lib64 "$CUOBJ_SDK_DIR"/lib "$CUOBJ_SDK_DIR"/targets/*-linux/lib; do
                for library in "$dir"/libcuobj*.so* "$dir"/libcufile*.so*; do
                    [ -e "$library" ] && cp -a "$library" /out/lib/ && found=1
                done
            done
            [ $found -eq 1 ] || die "no libcuobj*.so under CUOBJ_SDK_DIR=$CUOBJ_SDK_DIR (looked in lib64, lib, targets/*-linux/lib)"
        fi
        ;;
    runtime)
        install_for "libstdc++6 libnuma1 libibverbs1 librdmacm1 ibverbs-providers ca-certificates curl" \
            "libstdc++ numactl-libs libibverbs librdmacm ca-certificates curl"
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
