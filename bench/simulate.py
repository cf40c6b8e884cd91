"""What a job of 10,000 ranks asks of the machines: python -m bench.simulate writes docs/internals/scale.md.

Nothing is read from storage. bench/scale runs the functions of the loader that decide the order, the shares of ranks
and what is read. A benchmark of package pack opens a manifest of many chunks.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from . import stored
from .figures import table

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/internals/scale.md"
RESULTS = Path(__file__).parent / "results" / "scale.json"
NODE = 8  # ranks of a machine
LIMIT = 1 << 30  # bytes of a manifest that a reader accepts


def measure() -> dict[str, Any]:
    """Run the two programs. Several runs are within each, because other programs may run at the same time."""
    load = [round(os.getloadavg()[0], 1)]
    out = subprocess.run(["go", "run", "./bench/scale"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    lines = [json.loads(line) for line in out.splitlines()]
    manifest = metrics("./pack", "LargeManifest")["1000000"]
    feeders = metrics("./internal/feed/feedclient", "ManyTrainers")
    load.append(round(os.getloadavg()[0], 1))
    return {
        "date": time.strftime("%Y-%m-%d"),
        "load": load,
        **lines[0],
        "manifest": manifest,
        "feeders": feeders,
        "rows": lines[1:],
    }


def metrics(package: str, name: str) -> dict[str, dict[str, float]]:
    """The metrics of a Go benchmark, by the name of its part."""
    command = ["go", "test", package, "-run", "^$", "-bench", name, "-benchtime", "1x"]
    text = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {
        part: {unit: float(value) for value, unit in re.findall(r"([\d.]+) (\S+/\S+)", values)}
        for part, values in re.findall(rf"^Benchmark{name}/(\S+?)-\d+\s(.*)$", text, re.MULTILINE)
    }


def seconds(value: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e9:.0f} ns"


def size(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if value < 1000 or unit == "PB":
            return f"{value:.3g} {unit}"
        value /= 1000
    raise AssertionError


def order(row: dict[str, Any]) -> str:
    return f'`"window:{row["window"]:,}"`'.replace(",", "") if row["window"] else "`True`"


TEXT = """# 10,000 ranks: what is asked of the machines, and where the design ends

<!-- Written by `python -m bench.simulate`; edit bench/simulate.py instead. -->

{records:,} records in {shards:,} shards, {ranks:,} ranks, {batch} rows per rank and step. `make bench SUITES=scale`
runs the functions of the loader for this size on one machine: the orders, the shares of ranks, restoring, and what each
rank reads. No data is read. Chunks have 8 MiB. The storage has {servers:,} servers, and each shard is on one of them.

## Each rank

{time}

*Plan* is done once, *restore* is the first batch in the middle of an epoch, *batch* is a later one. All of it happens
in every rank, without messages between ranks. The times are the shortest of three to five runs. Other programs ran as
well: the load of the two cores was {load}. A saved state has at most 256 bytes.

A rank has {least:,} to {most:,} records in an epoch of {steps} steps.

## All ranks, in a step

{traffic}

- *Read for used* is the number of bytes that are read for one that is used. With `True`, each record is a request.
- *First step* is the number of requests of a job that starts or resumes: each rank reads the chunks of its lanes.
- *Per node* is what a machine with {node} ranks receives in a step.
- *At a server* is the busiest of {servers:,} servers, with the bytes that it sends, and *at a shard* the busiest shard.
  If a step takes 1 s, the bytes are those of a second.

The requests of all ranks are counted in steps at the beginning, in the middle and at the end of an epoch.

## Feeders

400 trainers choose among 40 servers with the code of the client, in simulated time. A server builds 16 batches at a
time, 50 ms each. *Waits for* is the number of batches that each trainer has requested at a time.

{feeders}

If all clients had the order of the list, all of them would ask the same server first, then the next one. So each client
has a random order of its own.

## Where the design ends

{ends}

For {records:,} photographs the manifest comes first: such a pack needs chunks of 16 MiB or more (`--chunk-size`).
With 64 MiB its manifest has {wide_manifest}, and an engine opens it in {wide_open}. For {ranks:,} ranks the window
comes second. The order itself does not end: its time and memory do not depend on the number of records.

A job that resumes opens the pack, computes its first batch, and reads. At this size opening takes nearly all of the
time until the first read.

## What comes next

- **A manifest in parts**: a file per group of shards. An engine then reads only the parts that it needs.
- **One read per machine**: with `Limits(shared=True)` the loaders of a machine share an engine, and `Cache(peers=)`
  shares chunks between machines. The manifest could travel the same way.
- **A window chosen by the ranks**: `"window:N"` could be rounded up to a multiple of the ranks.
- **Feeders in groups**: each trainer could use some servers of the list. Connections would then grow with the trainers
  only.
"""


def report(data: dict[str, Any]) -> None:
    """Write the page."""
    job, rows, manifest = data["job"], data["rows"], data["manifest"]
    nodes = job["ranks"] // NODE
    times = [
        [
            row["data"],
            order(row),
            seconds(row["plan_s"]) if row["window"] else "-",
            seconds(row["restore_s"]),
            seconds(row["batch_s"]),
            size(row["heap"]),
            size(row["window_bytes"]) if row["window"] else "a batch",
        ]
        for row in rows
    ]
    traffic = [
        [
            row["data"],
            order(row),
            f"{row['reads']:,.0f}",
            f"{row['first']:,}" if row["window"] else "the same",
            f"{row['again']:,.2f}",
            size(row["bytes"] * NODE / job["ranks"]),
            f"{row['server']:,}, {size(row['server'] * row['bytes'] / row['reads'])} (mean {row['server_mean']:,.0f})",
            f"{row['shard']:,}",
        ]
        for row in rows
    ]
    small = next(r for r in rows if r["window"] == 64)
    wide = max((r for r in rows if r["window"]), key=lambda r: (r["window"], r["first"]))
    texts, photos = (next(r for r in rows if r["data"].startswith(name)) for name in ("texts", "photo"))
    per = manifest["file-B/chunk"]
    opened = seconds(manifest["open-ns/chunk"] * texts["chunks"] / 1e9)
    heap, index = manifest["heap-B/chunk"] * texts["chunks"], manifest["index-B/record"]
    ends = [
        [
            "a window smaller than the ranks",
            "ranks / window",
            f'`"window:64"` reads each byte {small["again"]:,.0f} times',
            "now: use a multiple of the ranks",
        ],
        [
            "requests with `shuffle=True`",
            "records",
            f"{texts['reads']:,.0f} in a step, and in the first epoch up to as many for the index of chunks",
            "at the request rate of the storage: use windows",
        ],
        [
            "requests of a start",
            "window",
            f"{wide['first']:,} in the first step with {order(wide)}",
            "at the request rate of the storage: the start takes longer",
        ],
        [
            "memory of a window",
            "window / ranks",
            f"{wide['in_use']} chunks in a rank, {size(wide['window_bytes'])}",
            "at `memory` of the loader",
        ],
        [
            "manifest of a pack",
            "chunks",
            f"{per:.0f} bytes each: {size(per * texts['chunks'])} of texts, {size(per * photos['chunks'])} of photos",
            f"at 1 GiB: {LIMIT / per / 1e6:.1f} million chunks, {size(LIMIT / per * (8 << 20))} in chunks of 8 MiB",
        ],
        [
            "opening a pack",
            "chunks x engines",
            f"texts: {opened} and {size(heap)} in each engine; {size(per * texts['chunks'] * nodes)} for all machines",
            "at the time that a start may take: use larger chunks",
        ],
        [
            "listing of shards",
            "shards x engines",
            f"{job['shards'] // 1000 * nodes:,} pages of 1,000 names for all machines",
            "at the list rate of the bucket",
        ],
        [
            "index of records in an engine",
            "records",
            f"photographs: {index:.1f} bytes each, {size(index * job['records'])} of addresses; "
            "pages are used when their chunk is read",
            "at the memory of a machine: use more packs, or larger records",
        ],
        [
            "feeders",
            "trainers x servers",
            f"{data['ticket']['bytes']:.0f} bytes for a request, {seconds(data['ticket']['parse_s'])} to parse it",
            "at the connections of a server: every trainer connects to every server",
        ],
    ]
    text = TEXT.format(
        **(job | data["share"]),
        load=" to ".join(f"{v:.0f}" for v in sorted(data["load"])),
        time=table(["data", "`shuffle`", "plan", "restore", "batch", "memory", "chunks in use"], times, range(2, 7)),
        traffic=table(
            ["data", "`shuffle`", "requests", "first step", "read for used", "per node", "at a server", "at a shard"],
            traffic,
            range(2, 8),
        ),
        feeders=table(
            [
                "order of servers",
                "waits for",
                "most at a server at the start, x mean",
                "later",
                "batches, % of possible",
            ],
            [
                [
                    name.split("/")[0].replace("-", " "),
                    name.split("/")[1],
                    f"{of['start-most/mean']:.1f}",
                    f"{of['later-most/mean']:.1f}",
                    f"{100 * of['of-possible/batches']:.0f}",
                ]
                for name, of in data["feeders"].items()
            ],
            range(1, 5),
        ),
        ends=table(["what", "grows with", "at this size", "it ends"], ends, ()),
        node=NODE,
        wide_manifest=size(per * photos["chunks"] / 8),
        wide_open=seconds(manifest["open-ns/chunk"] * photos["chunks"] / 8e9),
    )
    PAGE.write_text(text)
    print(f"wrote {PAGE}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.simulate", description=__doc__)
    parser.add_argument("--report", action="store_true", help="write the page from the saved results")
    if not parser.parse_args().report:
        stored.save(RESULTS, measure())
    report(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    main()
