"""Drives S3 libraries for Python against a gateway: python3 clients.py LIBRARY TREE LARGE WORK.

TREE is a directory with awkward names, LARGE a file for a multipart upload, WORK a directory to
download into. S3 is the gateway's URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY the account. Every
byte is compared; the first difference ends the program with 1.
"""

import hashlib
import os
import sys
import urllib.request
from pathlib import Path

ENDPOINT = os.environ["S3"]
ACCESS, SECRET = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
REGION = "us-east-1"
PART = 5 << 20


class Boto3:
    """The transfer manager of boto3."""

    def __init__(self, bucket):
        import boto3
        from boto3.s3.transfer import TransferConfig

        self.bucket = bucket
        self.client = boto3.client("s3", endpoint_url=ENDPOINT, region_name=REGION)
        self.config = TransferConfig(multipart_threshold=PART, multipart_chunksize=PART)
        self.client.create_bucket(Bucket=bucket)

    def upload(self, path, key):
        self.client.upload_file(str(path), self.bucket, key, Config=self.config)

    def download(self, key, path):
        self.client.download_file(self.bucket, key, str(path), Config=self.config)

    def keys(self):
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, PaginationConfig={"PageSize": 5}
        )
        return {entry["Key"] for page in pages for entry in page.get("Contents", [])}

    def copy(self, source, target):
        self.client.copy({"Bucket": self.bucket, "Key": source}, self.bucket, target, Config=self.config)

    def presign(self, key):
        return self.client.generate_presigned_url("get_object", Params={"Bucket": self.bucket, "Key": key})

    def delete(self, keys):
        objects = [{"Key": key} for key in keys]
        answer = self.client.delete_objects(Bucket=self.bucket, Delete={"Objects": objects})
        assert "Errors" not in answer, answer["Errors"]


class Minio:
    """MinIO's client."""

    def __init__(self, bucket):
        import minio

        host = ENDPOINT.removeprefix("http://")
        self.bucket = bucket
        self.client = minio.Minio(host, access_key=ACCESS, secret_key=SECRET, secure=False, region=REGION)
        self.client.make_bucket(bucket)

    def upload(self, path, key):
        self.client.fput_object(self.bucket, key, str(path), part_size=PART)

    def download(self, key, path):
        self.client.fget_object(self.bucket, key, str(path))

    def keys(self):
        return {entry.object_name for entry in self.client.list_objects(self.bucket, recursive=True)}

    def copy(self, source, target):
        from minio.commonconfig import CopySource

        self.client.copy_object(self.bucket, target, CopySource(self.bucket, source))

    def presign(self, key):
        return self.client.presigned_get_object(self.bucket, key)

    def delete(self, keys):
        from minio.deleteobjects import DeleteObject

        # It writes characters beyond U+FFFF as references, which s3s 0.14.1 refuses in documents.
        single = {key for key in keys if max(key) > "\uffff"}
        several = [DeleteObject(key) for key in keys - single]
        errors = list(self.client.remove_objects(self.bucket, several))
        assert not errors, errors
        for key in single:
            self.client.remove_object(self.bucket, key)


class Obstore:
    """Rust's object_store, as obstore has it."""

    def __init__(self, bucket):
        from obstore.store import S3Store

        self.store = S3Store(
            bucket,
            endpoint=ENDPOINT,
            access_key_id=ACCESS,
            secret_access_key=SECRET,
            region=REGION,
            client_options={"allow_http": True},
        )

    def upload(self, path, key):
        import obstore

        with open(path, "rb") as file:
            obstore.put(self.store, key, file, use_multipart=path.stat().st_size > PART, chunk_size=PART)

    def download(self, key, path):
        import obstore

        path.write_bytes(bytes(obstore.get(self.store, key).bytes()))

    def keys(self):
        import obstore

        return {entry["path"] for page in obstore.list(self.store, chunk_size=5) for entry in page}

    def copy(self, source, target):
        import obstore

        obstore.copy(self.store, source, target)

    def presign(self, key):
        import datetime

        import obstore

        return obstore.sign(self.store, "GET", key, datetime.timedelta(minutes=5))

    def delete(self, keys):
        import obstore

        obstore.delete(self.store, list(keys))


class S3fs:
    """The file system of fsspec."""

    def __init__(self, bucket):
        import s3fs

        self.bucket = bucket
        self.fs = s3fs.S3FileSystem(endpoint_url=ENDPOINT, key=ACCESS, secret=SECRET, use_listings_cache=False)
        self.fs.mkdir(bucket)

    def upload(self, path, key):
        self.fs.put_file(str(path), f"{self.bucket}/{key}", chunksize=PART)

    def download(self, key, path):
        self.fs.get_file(f"{self.bucket}/{key}", str(path))

    def keys(self):
        return {name.removeprefix(f"{self.bucket}/") for name in self.fs.find(self.bucket)}

    def copy(self, source, target):
        self.fs.copy(f"{self.bucket}/{source}", f"{self.bucket}/{target}")

    def presign(self, key):
        return self.fs.sign(f"{self.bucket}/{key}")

    def delete(self, keys):
        self.fs.rm([f"{self.bucket}/{key}" for key in keys])


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def run(library, tree, large, work):
    client = {"boto3": Boto3, "minio": Minio, "obstore": Obstore, "s3fs": S3fs}[library](library)
    tree, work = Path(tree), Path(work)
    work.mkdir()
    files = {str(path.relative_to(tree)): path for path in tree.rglob("*") if path.is_file()}
    files["large file"] = Path(large)
    for key, path in files.items():
        client.upload(path, key)
    assert client.keys() == files.keys(), client.keys() ^ files.keys()
    for number, (key, path) in enumerate(files.items()):
        client.download(key, work / str(number))
        assert digest(work / str(number)) == digest(path), key
        with urllib.request.urlopen(client.presign(key)) as answer:
            assert hashlib.sha256(answer.read()).hexdigest() == digest(path), f"presigned {key}"
    client.copy("large file", "a copy/of+it")
    client.download("a copy/of+it", work / "copy")
    assert digest(work / "copy") == digest(large)
    client.delete(client.keys())
    assert client.keys() == set(), client.keys()
    print(f"{len(files)} files up, listed, down, presigned, copied, deleted")


if __name__ == "__main__":
    run(*sys.argv[1:])
