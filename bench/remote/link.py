"""A remote link of 1 Gbit/s: a network namespace with `tbf`. The kernels of small machines often have no `netem`, so
a server before the bucket adds the latency to its answers."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from . import servers

if TYPE_CHECKING:
    from .__main__ import Bench

NAME, NEAR, FAR = f"stoker-bench-{os.getpid()}", f"sb{os.getpid()}a", f"sb{os.getpid()}b"
HERE, THERE = "10.231.77.1", "10.231.77.2"
RATE = 125e6
# The data bytes per second that the limit allows, from the share of data in each frame (119.6 MB/s, tried with one
# connection).
LINK = RATE * 1448 / 1514
LATENCY, JITTER, ROUND_TRIP = "40ms", "40ms", 0.060


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise servers.MissingError(f"{' '.join(command)}: {done.stderr.strip()}")


@contextlib.contextmanager
def _namespace() -> Iterator[list[str]]:
    """A namespace that reaches this one through the link. Yields the prefix of a command that runs in it."""
    if os.getuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        raise servers.MissingError("it takes root, ip and tc (iproute2)")
    _do("ip", "netns", "add", NAME)
    inside = ["ip", "netns", "exec", NAME]
    try:
        _do("ip", "link", "add", NEAR, "type", "veth", "peer", "name", FAR)
        _do("ip", "link", "set", FAR, "netns", NAME)
        _do("ip", "addr", "add", f"{HERE}/24", "dev", NEAR)
        _do("ip", "link", "set", NEAR, "up")
        _do(*inside, "ip", "addr", "add", f"{THERE}/24", "dev", FAR)
        _do(*inside, "ip", "link", "set", FAR, "up")
        _do(*inside, "ip", "link", "set", "lo", "up")
        _do("tc", "qdisc", "add", "dev", NEAR, "root", "tbf", "rate", "1gbit", "burst", "512kb", "latency", "50ms")
        yield inside
    finally:
        subprocess.run(["ip", "link", "del", NEAR], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", NAME], capture_output=True, check=False)


@contextlib.contextmanager
def _nothing_known() -> Iterator[dict[str, str]]:
    """An empty folder for data that engines cache, such as the manifest."""
    with tempfile.TemporaryDirectory() as folder:
        yield {"XDG_CACHE_HOME": folder}


def _chunks(pack: Path, records: list[int]) -> int:
    """The bytes of the chunks of a pack that contain the records."""
    shards = json.loads((pack / "manifest.json").read_text())["shards"]
    chunks = [chunk for shard in shards for chunk in shard["chunks"]]
    ends = list(itertools.accumulate(chunk["rows"] for chunk in chunks))
    return sum(chunks[i]["bytes"] for i in {bisect.bisect_right(ends, record) for record in records})


def measure(bench: Bench) -> None:
    data_set = bench.a.suite
    with _namespace() as inside, bench.packed(data_set) as url:
        far = servers.throttled(url, bench.tool, LATENCY, 0.0, f"{HERE}:0", jitter=JITTER)
        with far as at:
            variables = servers.environment(at)
            for number in range(bench.a.rounds):
                for order in ("full", "window:16"):  # a larger one would hold all of so small a set
                    arm = bench.pinned([bench.python("project"), "-m", "bench.remote.bytes_arm"])
                    what = [f"s3://{servers.BUCKET}/{data_set}-keep", order]
                    with _nothing_known() as cache:
                        near = bench.run([*arm, *what], "link", servers.environment(url) | cache)
                    with _nothing_known() as cache:
                        got = bench.run([*inside, *arm, *what, "3"], "link", variables | cache)
                    if "error" in near:
                        got = near
                    if "error" not in got:
                        got["share"] = got["received_s"] / LINK
                        got["near_s"] = near["first_batch_s"]
                        own, records = got["first_bytes"], got["first_records"]
                        if order != "full":  # it is there when the chunks are that its records lie in
                            own = _chunks(bench.bucket / servers.BUCKET / f"{data_set}-keep", records)
                        # The engine's start is not a round trip. Only the requests of opening count.
                        got["round_trips"] = (got["first_batch_s"] - own / LINK - near["open_s"]) / ROUND_TRIP
                    bench.note("link", order, number, got)
