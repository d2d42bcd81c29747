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

say "the software SDK's own tests"
sys/soft/tests/run.sh

say "all checks passed"
