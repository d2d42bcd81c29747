"""Tokens that a client has changed, and tokens of a client that has died, against a running gateway.

Usage: forged_tokens.py ENDPOINT COMMAND...; credentials from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
COMMAND is sys/soft/tests/interop/client.cc as a program, on either client library: it prints a PUT and a
GET token of patterned memory, and checks what a GET has written when it reads "g".
Prints one line per check; the first that fails ends the run with its traceback and status 1.
"""

import subprocess
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

endpoint, command = sys.argv[1], sys.argv[2:]
SIZE = 4 << 20
BUCKET = "forged-tokens"
KEY = "object"
# Positions of the fields in a descriptor: address, length, memory key, LID, DC target, GID flag, GID.
ADDRESS, LENGTH, MEMORY_KEY, TARGET = slice(0, 16), slice(17, 25), slice(26, 34), slice(40, 46)

token = None


def carry_token(request, **_):
    """Puts the token into the request before it is signed."""
    if token:
        request.headers["x-amz-rdma-token"] = token


options = {"s3": {"addressing_style": "path"}, "retries": {"total_max_attempts": 1}, "read_timeout": 120}
if "request_checksum_calculation" in Config.OPTION_DEFAULTS:
    # Newer versions add a checksum of the HTTP body, which an RDMA request does not have.
    options["request_checksum_calculation"] = "when_required"
s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=Config(**options))
s3.meta.events.register("before-sign.s3", carry_token)


def check(what, condition, detail=""):
    """Ends the run unless the condition holds."""
    if not condition:
        raise AssertionError(f"{what}: {detail}")
    print(f"ok {what}", flush=True)


def pattern(seed):
    """What testing::fill() of check.h writes."""
    return bytes((i * 7 + i // 251 + seed * 13) & 0xFF for i in range(SIZE))


def changed(text, field, value):
    """The token with one field replaced."""
    return text[: field.start] + value + text[field.stop :]


def send(method, with_token, **arguments):
    """HTTP status and S3 error code of a request that carries a token; 200 and no code for success."""
    global token
    token = with_token
    try:
        answer = getattr(s3, method)(Bucket=BUCKET, Key=KEY, **arguments)
        return answer["ResponseMetadata"]["HTTPStatusCode"], None, answer
    except ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"], None
    finally:
        token = None


def stored():
    """The object's bytes, over HTTP."""
    return s3.get_object(Bucket=BUCKET, Key=KEY)["Body"].read()


client = subprocess.Popen([*command, str(SIZE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
put, get = client.stdout.readline().strip(), client.stdout.readline().strip()
check("the client mints two tokens", len(put) == len(get) == 81)
first, second = pattern(1), pattern(2)
s3.create_bucket(Bucket=BUCKET)

status, _, answer = send("put_object", put)
check("PUT with the token as it is", status == 200)
headers = answer["ResponseMetadata"]["HTTPHeaders"]
check("it went by RDMA", headers.get("x-amz-rdma-reply") == "200", headers)
check("the object is the client's memory", stored() == first)

other_key = "12345678" if put[MEMORY_KEY] != "12345678" else "12345679"
double = f"{2 * SIZE:08x}"
below = f"{int(put[ADDRESS], 16) - 4096:016x}"
for what, forged in [
    ("another memory key", changed(put, MEMORY_KEY, other_key)),
    ("a window larger than the memory", changed(put, LENGTH, double)),
    ("an address below the memory", changed(put, ADDRESS, below)),
]:
    status, code, _ = send("put_object", forged)
    check(f"PUT with {what} is refused", (status, code) == (400, "InvalidArgument"), (status, code))
    check(f"… and stored nothing with {what}", stored() == first)

# The object, 8 bytes shorter, so that it fits the window of the GET token; written over HTTP.
s3.put_object(Bucket=BUCKET, Key=KEY, Body=second[: SIZE - 8])
status, _, answer = send("get_object", get)
check("GET with the token as it is", status == 200)
client.stdin.write("g\n")
client.stdin.flush()
check("the client's memory is the object", client.stdout.readline().strip() == "good")
status, code, _ = send("get_object", changed(get, MEMORY_KEY, other_key))
check("GET with another memory key is refused", (status, code) == (400, "InvalidArgument"), (status, code))
short = changed(get, LENGTH, f"{SIZE - 9:08x}")
status, code, _ = send("get_object", short)
check("GET into a window that is too small is refused", (status, code) == (400, "InvalidArgument"), (status, code))

target = "123456" if put[TARGET] != "123456" else "123457"
status, code, _ = send("put_object", changed(put, TARGET, target))
check("PUT from a target that nobody has fails", status >= 500, (status, code))

client.kill()
client.wait()
status, code, _ = send("put_object", put)
check("PUT from a client that has died fails", status >= 500, (status, code))
status, code, _ = send("get_object", get)
check("GET into a client that has died fails", status >= 500, (status, code))
check("the object is as it was", stored() == second[: SIZE - 8])
