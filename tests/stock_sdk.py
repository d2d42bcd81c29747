"""A stock S3 SDK (boto3) against a running gateway: what an ordinary user does, compared byte for byte.

Usage: stock_sdk.py ENDPOINT; credentials from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
Prints one line per check; the first that fails ends the run with its traceback and status 1.
"""

import hashlib
import os
import sys
import urllib.request

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

endpoint = sys.argv[1]
s3 = boto3.client(
    "s3",
    endpoint_url=endpoint,
    region_name="us-east-1",
    config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
)
BUCKET = "stock-sdk"


def code_of(call, **arguments):
    """The S3 error code and HTTP status that a call fails with."""
    try:
        call(**arguments)
    except ClientError as error:
        return error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    raise AssertionError(f"{call.__name__} succeeded with {arguments}")


def check(what, condition, detail=""):
    """Ends the run unless the condition holds."""
    if not condition:
        raise AssertionError(f"{what}: {detail}")
    print(f"ok {what}", flush=True)


body = os.urandom(3 * 1024 * 1024 + 17)
md5 = hashlib.md5(body).hexdigest()

s3.create_bucket(Bucket=BUCKET)
check("bucket is listed", BUCKET in [b["Name"] for b in s3.list_buckets()["Buckets"]])
check("bucket location", s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] in (None, "us-east-1"))

put = s3.put_object(
    Bucket=BUCKET,
    Key="a/b c+ü%.bin",
    Body=body,
    ContentType="application/x-test",
    CacheControl="no-store",
    Metadata={"colour": "blue", "empty": ""},
)
check("ETag is the MD5", put["ETag"] == f'"{md5}"', put["ETag"])
got = s3.get_object(Bucket=BUCKET, Key="a/b c+ü%.bin")
check("bytes come back", got["Body"].read() == body)
check("standard headers", (got["ContentType"], got["CacheControl"]) == ("application/x-test", "no-store"))
check("user metadata", got["Metadata"] == {"colour": "blue", "empty": ""}, got["Metadata"])
head = s3.head_object(Bucket=BUCKET, Key="a/b c+ü%.bin")
check("HEAD agrees", (head["ContentLength"], head["ETag"]) == (len(body), put["ETag"]))

for spec, wanted in [("bytes=0-0", body[:1]), ("bytes=100-1999", body[100:2000]), ("bytes=-7", body[-7:])]:
    part = s3.get_object(Bucket=BUCKET, Key="a/b c+ü%.bin", Range=spec)
    check(f"range {spec}", part["Body"].read() == wanted and part["ResponseMetadata"]["HTTPStatusCode"] == 206)
check(
    "unsatisfiable range",
    code_of(s3.get_object, Bucket=BUCKET, Key="a/b c+ü%.bin", Range=f"bytes={len(body)}-") == ("InvalidRange", 416),
)

s3.put_object(Bucket=BUCKET, Key="empty", Body=b"")
check("empty object", s3.get_object(Bucket=BUCKET, Key="empty")["Body"].read() == b"")
s3.put_object(Bucket=BUCKET, Key="empty", Body=b"no longer")
check("overwrite", s3.get_object(Bucket=BUCKET, Key="empty")["Body"].read() == b"no longer")

check("missing key", code_of(s3.get_object, Bucket=BUCKET, Key="nothing") == ("NoSuchKey", 404))
check("missing bucket", code_of(s3.list_objects_v2, Bucket="no-such-bucket") == ("NoSuchBucket", 404))
check("bucket not empty", code_of(s3.delete_bucket, Bucket=BUCKET) == ("BucketNotEmpty", 409))

keys = sorted(f"list/{i % 5}/{i:03}" for i in range(40))
for key in keys:
    s3.put_object(Bucket=BUCKET, Key=key, Body=key.encode())
pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="list/", PaginationConfig={"PageSize": 7})
check("V2 pages", [o["Key"] for page in pages for o in page.get("Contents", [])] == keys)
pages = s3.get_paginator("list_objects").paginate(Bucket=BUCKET, Prefix="list/", PaginationConfig={"PageSize": 7})
check("V1 pages", [o["Key"] for page in pages for o in page.get("Contents", [])] == keys)
rolled = s3.list_objects_v2(Bucket=BUCKET, Prefix="list/", Delimiter="/")
check("common prefixes", [p["Prefix"] for p in rolled["CommonPrefixes"]] == [f"list/{i}/" for i in range(5)])

url = s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": keys[0]}, ExpiresIn=60)
with urllib.request.urlopen(url) as reply:
    check("presigned GET", reply.read() == keys[0].encode())

big = os.urandom(17 * 1024 * 1024 + 5)
path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"stock-sdk-{os.getpid()}")
try:
    with open(path, "wb") as file:
        file.write(big)
    config = TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=5 << 20)
    s3.upload_file(path, BUCKET, "multipart", Config=config)
    check("multipart ETag", s3.head_object(Bucket=BUCKET, Key="multipart")["ETag"].endswith('-4"'))
    s3.download_file(BUCKET, "multipart", path, Config=config)
    with open(path, "rb") as file:
        check("multipart bytes", file.read() == big)
finally:
    os.unlink(path)

wrong = boto3.client(
    "s3",
    endpoint_url=endpoint,
    region_name="us-east-1",
    aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
    aws_secret_access_key="not the secret",
)
check("wrong secret", code_of(wrong.list_objects_v2, Bucket=BUCKET) == ("SignatureDoesNotMatch", 403))

everything = [o["Key"] for page in s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET) for o in page["Contents"]]
deleted = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in everything]})
check("all deleted", len(deleted["Deleted"]) == len(everything) and not deleted.get("Errors"))
s3.delete_bucket(Bucket=BUCKET)
check("bucket gone", code_of(s3.head_bucket, Bucket=BUCKET)[1] == 404)
print("all checks passed")
