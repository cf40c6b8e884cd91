"""Arms that read ranges of an object with a client in Python, and print the time as a line of JSON.

Usage:

    python -m bench.remote.read_arm obstore|boto3 KEY --block N --depth N --bytes N
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

Read = Callable[[int, int], int]


def _obstore(key: str) -> tuple[int, Read]:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        "bench",
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        region="us-east-1",
        access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
        secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True},
    )
    # It allocates its own buffers. They are used without a copy, which is in its favour.
    return obstore.head(store, key)["size"], lambda at, n: len(obstore.get_range(store, key, start=at, length=n))


def _boto3(key: str) -> tuple[int, Read]:
    import boto3
    from botocore.config import Config

    client = boto3.client("s3", config=Config(max_pool_connections=128))

    def read(at: int, n: int) -> int:
        body = client.get_object(Bucket="bench", Key=key, Range=f"bytes={at}-{at + n - 1}")["Body"]
        return len(body.read())

    return client.head_object(Bucket="bench", Key=key)["ContentLength"], read


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("client", choices=["obstore", "boto3"])
    p.add_argument("key")
    p.add_argument("--block", type=int, default=8 << 20)
    p.add_argument("--depth", type=int, default=16)
    p.add_argument("--bytes", type=int, default=4 << 30)
    a = p.parse_args()
    size, read = (_obstore if a.client == "obstore" else _boto3)(a.key)
    blocks, places = -(-a.bytes // a.block), size // a.block

    def one(i: int) -> None:
        if read(i % places * a.block, a.block) != a.block:
            raise SystemExit("a range came short")

    with ThreadPoolExecutor(a.depth) as pool:
        list(pool.map(one, range(a.depth)))  # connections
        before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        list(pool.map(one, range(blocks)))
        took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    gb = blocks * a.block / 1e9
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    version = importlib.metadata.version(a.client)
    result = {"gb": gb, "seconds": took, "gb_s": gb / took, "cpu_s_per_gb": cpu / gb}
    print(json.dumps(result | {"versions": {a.client: version}}))


if __name__ == "__main__":
    main()
