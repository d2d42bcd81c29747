#!/usr/bin/env bash
# Installs what the checks need, lints, builds, and runs every test. Green or non-zero.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$ROOT"

install_packages "${PACKAGES_TEST[@]}"
need_rust

say "format and lints"
cargo fmt --all --check
cargo clippy --locked --workspace --all-targets -- -D warnings

shellcheck -x -P SCRIPTDIR scripts/*.sh .ci/run

say "the gateway alone, the client alone"
cargo clippy --locked --no-default-features --features server --all-targets -- -D warnings
cargo clippy --locked --no-default-features --features client --all-targets -- -D warnings

say "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet

say "tests"
cargo test --locked --workspace --no-fail-fast

say "the shim against the second generation of the SDK's headers"
# A build folder of its own, so that neither shape is built anew each time.
CUOBJ_PROVIDER=soft CUOBJ_SOFT_GENERATION=2 \
    cargo test --locked --package cuobj-sys --target-dir "${CARGO_TARGET_DIR:-target}/generation-2" --quiet

say "the software SDK's own tests"
sys/soft/tests/run.sh

say "the container's steps"
scripts/test-container.sh

say "all checks passed"
