"""Packing in parts: killed and repeated processes give the pack of one process. test_cluster.py has schedulers."""

from __future__ import annotations

import concurrent.futures
import os
import random
import re
import subprocess
from pathlib import Path

import pytest
from parts import OPTIONS, one_process, part, sums

import stoker
from support import CHECKOUT, cli

PARTS = 8


def test_killed_processes_give_the_pack_of_one(binary: str, photos: Path, tmp_path: Path) -> None:
    want = one_process(binary, photos, tmp_path / "one", PARTS)
    out = tmp_path / "pool"
    kills = random.Random(3)
    killed = [kills.random() < 0.7 for _ in range(PARTS)]

    def work(i: int) -> None:
        command = part(binary, photos, out, i, PARTS)
        if killed[i]:  # after it has begun
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and not list(out.glob(f"unfinished-{i:05d}*")):
                os.sched_yield()
            process.kill()
            process.wait()
        subprocess.run(command, check=True, capture_output=True)

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(work, kills.sample(range(PARTS), PARTS)))
    cli(binary, "pack", "--commit", out)
    assert any(killed) and sums(out) == want


def test_parts_of_python(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "p"
    for i in (1, 0):
        assert stoker.pack(photos, out, part=(i, 2), images="keep").records in (101, 102)
    assert stoker.pack(photos, out, part=(1, 2), images="keep").unchanged
    made = stoker.commit_pack(out)
    assert made.records == 203 and len(stoker.open(out)) == 203
    assert stoker.commit_pack(out).bytes == made.bytes


def test_refusals_when_a_part_begins(photos: Path, pack: Path, tmp_path: Path) -> None:
    out = tmp_path / "p"
    stoker.pack(photos, out, part=(0, 2), images="keep")
    before = sums(out)
    for data, which, images, why in (
        (photos, (1, 3), "keep", "it is one of 2 parts and not of 3"),
        (photos, (1, 2), "raw", "it has other options (images: keep then, raw now)"),
        (next(p for p in photos.iterdir() if p.is_dir()), (1, 2), "keep", f"it has data of {photos}"),
    ):
        with pytest.raises(stoker.StokerError, match=re.escape(why)):
            stoker.pack(data, out, part=which, images=images)
    assert sums(out) == before
    with pytest.raises(stoker.StokerError, match="has 1 of 2 pieces"):
        stoker.commit_pack(out)
    with pytest.raises(stoker.ConfigError, match="give I/N"):
        stoker.pack(photos, out, part=(2, 2))
    with pytest.raises(stoker.ConfigError, match=r"give \(i, n\)"):
        stoker.pack(photos, out, part="0/2")  # type: ignore[arg-type]
    with pytest.raises(stoker.ConfigError, match="part= needs data at a path"):
        stoker.pack([b"x"], out, part=(0, 2))


def test_a_part_ends_with_its_parent(binary: str, photos: Path, tmp_path: Path) -> None:
    """A scheduler kills its worker, and the worker's child must not hold the part."""
    command = [binary, "pack", str(photos), str(tmp_path / "p"), "--parent", "1", *OPTIONS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 130 and "interrupted" in done.stderr


@pytest.mark.parametrize("script", sorted((CHECKOUT / "examples/slurm").glob("*.s*")), ids=lambda p: p.name)
def test_scripts_of_slurm_parse(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
