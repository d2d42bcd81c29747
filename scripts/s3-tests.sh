#!/usr/bin/env bash
# Runs ceph/s3-tests against a gateway of its own and compares with the failures that are expected:
#
#     scripts/s3-tests.sh GIT_DIR [PYTEST-ARGUMENT…]
#
# GIT_DIR is a checkout or a bare repository of https://github.com/ceph/s3-tests; its HEAD is run.
# A failure that tests/s3-tests-expected-failures.txt does not name, or a pass that it names, ends the
# script with 1. Arguments such as `-k cors` narrow the run. VGWRDMA is a gateway to use instead of
# building one, RESULTS a file to keep pytest's results in (JUnit XML).
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

[ $# -ge 1 ] || die "which suite? usage: scripts/s3-tests.sh GIT_DIR [PYTEST-ARGUMENT…]"
SUITE=$(git -C "$1" rev-parse --absolute-git-dir) || die "$1 is no git repository"
shift
EXPECTED=$ROOT/tests/s3-tests-expected-failures.txt
MARKERS="fails_on_aws encryption lifecycle_expiration lifecycle_transition bucket_logging sse_s3 iam_account torrent"

cd "$ROOT"
if [ -z "${VGWRDMA:-}" ]; then
    need_rust
    say "building (release)"
    cargo build --locked --release --bin vgwrdma --quiet
    VGWRDMA=${CARGO_TARGET_DIR:-$ROOT/target}/release/vgwrdma
fi

WORK=$(mktemp -d)
cleanup() { stop_gateway; rm -rf "$WORK"; }
trap cleanup EXIT
trap 'exit 130' INT TERM

say "the suite at $(git --git-dir "$SUITE" log -1 --format='%h of %cs')"
mkdir "$WORK/suite" "$WORK/data" "$WORK/versions" "$WORK/iam"
git --git-dir "$SUITE" archive HEAD | tar -x -C "$WORK/suite"
python3 -m venv "$WORK/venv"
"$WORK/venv/bin/pip" install --quiet --disable-pip-version-check -r "$ROOT/tests/s3-tests-requirements.txt"

# --- three users, beside the root account
random() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }
section() { printf '[%s]\nuser_id = %s\ndisplay_name = %s\naccess_key = %s\nsecret_key = %s\nemail = %s\n' \
    "$1" "$2" "$2" "$2" "$(<"$WORK/$2.secret")" "$2@example.com"; }
accounts=
for user in main alt tenant; do
    random >"$WORK/$user.secret"
    accounts+="${accounts:+,}\"$user\":{\"access\":\"$user\",\"secret\":\"$(<"$WORK/$user.secret")\",\"role\":\"userplus\",\"userID\":0,\"groupID\":0,\"projectID\":0}"
done
(umask 077 && printf '{"accessAccounts":{%s}}' "$accounts" >"$WORK/iam/users.json")
ROOT_ACCESS_KEY_ID=root ROOT_SECRET_ACCESS_KEY=$(random)
export ROOT_ACCESS_KEY_ID ROOT_SECRET_ACCESS_KEY
# The suite sets ACLs in buckets that it made without a word on ownership.
start_gateway "$VGWRDMA" "$WORK/gateway.log" --iam-dir "$WORK/iam" --default-ownership object-writer \
    posix --durability none --versioning-dir "$WORK/versions" "$WORK/data"
{
    printf '[DEFAULT]\nhost = 127.0.0.1\nport = %s\nis_secure = False\nssl_verify = False\n' "${S3##*:}"
    printf '[fixtures]\nbucket prefix = vgw-{random}-\niam name prefix = s3-tests-\niam path prefix = /s3-tests/\n'
    section "s3 main" main
    echo 'api_name = us-east-1'
    section "s3 alt" alt
    section "s3 tenant" tenant
    echo 'tenant = testx'
    section iam main
    section "iam root" main
    section "iam alt root" alt
} >"$WORK/suite.conf"

say "running"
# shellcheck disable=SC2086 # the markers are words
MARKED=$(printf ' and not %s' $MARKERS)
cd "$WORK/suite"
# Its own verdict does not count, the comparison below does.
S3TEST_CONF=$WORK/suite.conf "$WORK/venv/bin/python" -m pytest -q -p no:cacheprovider --tb=no -rN \
    --timeout 120 -m "${MARKED# and }" --junit-xml "$WORK/results.xml" \
    s3tests/functional/test_s3.py s3tests/functional/test_headers.py "$@" || true
[ -s "$WORK/results.xml" ] || die "pytest gave no results"
kill -0 "$GATEWAY" 2>/dev/null || { tail "$WORK/gateway.log" >&2; die "the gateway ended"; }
[ -z "${RESULTS:-}" ] || cp "$WORK/results.xml" "$RESULTS"

python3 "$ROOT/scripts/s3-tests-compare.py" "$WORK/results.xml" "$EXPECTED"
