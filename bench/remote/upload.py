"""Copies files into the bucket of the benchmark, below a prefix, and prints how many.

    python -m bench.remote.upload FOLDER PREFIX [--urls FILE]

With --urls nothing is copied: the signed URLs of all of them go into a file, for programs that read URLs.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
from botocore.config import Config


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("folder", type=Path)
    p.add_argument("prefix")
    p.add_argument("--urls", type=Path)
    a = p.parse_args()
    config = Config(max_pool_connections=16, s3={"addressing_style": "path"}, signature_version="s3v4")
    client = boto3.client("s3", config=config)
    files = sorted(f for f in a.folder.rglob("*") if f.is_file()) if a.folder.is_dir() else [a.folder]
    root = a.folder if a.folder.is_dir() else a.folder.parent
    keys = [f"{a.prefix}/{f.relative_to(root)}" for f in files]
    if a.urls:
        tars = [k for k in keys if k.endswith(".tar")]
        signed = [client.generate_presigned_url("get_object", {"Bucket": "bench", "Key": k}, 86400) for k in tars]
        a.urls.write_text("\n".join(signed) + "\n")
    else:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda f, k: client.upload_file(str(f), "bench", k), files, keys))
    print(json.dumps({"files": len(files)}))


if __name__ == "__main__":
    main()
