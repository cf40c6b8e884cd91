"""The loader with the real engine."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker import transforms as T
from support import SOURCE, alive, children, cli, left_in_memory, open_files, shared_memory, wait_for

Make = Callable[..., stoker.Loader]
CROP: dict[str, Any] = {"image": [T.RandomResizedCrop(48), T.RandomHorizontalFlip()]}
COUNT = 203


def epoch(loader: stoker.Loader, own: bool = True) -> list[stoker.Batch]:
    return [b.copy() if own else b for b in loader]


# --- delivered batches -----------------------------------------------------


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_every_record_once_over_all_ranks(make: Make, pack: Path, world: int, drop_last: bool) -> None:
    for e in (0, 1):
        seen: list[int] = []
        steps = set()
        for rank in range(world):
            loader = make(
                pack,
                batch_size=8,
                shuffle=True,
                seed=4,
                transforms=CROP,
                ranks=stoker.Ranks(rank, world),
                drop_last=drop_last,
            )
            loader.set_epoch(e)
            ids = [b.index.copy() for b in loader]
            steps.add(len(ids))
            assert len(loader) == len(ids)
            seen += np.concatenate(ids).tolist()
            loader.close()
        assert len(steps) == 1, "each rank has the same number of steps"
        assert len(seen) == len(set(seen))
        assert len(seen) == (COUNT // (8 * world) * 8 * world if drop_last else COUNT)


def test_order(make: Make, pack: Path) -> None:
    loader = make(pack, batch_size=50, transforms=CROP)
    assert np.concatenate([b.index for b in epoch(loader)]).tolist() == list(range(COUNT))
    shuffled = make(pack, batch_size=50, transforms=CROP, shuffle=True, seed=1)
    first, second = (np.concatenate([b.index for b in epoch(shuffled)]) for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(COUNT))
    assert (first != second).any()
    other = make(pack, batch_size=50, transforms=CROP, shuffle=True, seed=2)
    assert (np.concatenate([b.index for b in epoch(other)]) != first).any()


def test_labels_and_classes(make: Make, pack: Path, photos: Path) -> None:
    loader = make(pack, batch_size=64, transforms=CROP)
    assert loader.classes == sorted(p.name for p in photos.iterdir())
    assert loader.num_records == COUNT
    labels = np.concatenate([b.label for b in epoch(loader)])
    files = sorted(photos.glob("*/*.jpg"))
    assert [loader.classes[i] for i in labels] == [f.parent.name for f in files]


def test_folder_and_pack_give_the_same_pixels(make: Make, pack: Path, photos: Path) -> None:
    a = epoch(make(pack, batch_size=32, shuffle=True, seed=7, transforms=CROP))
    b = epoch(make(photos, batch_size=32, shuffle=True, seed=7, transforms=CROP))
    for x, y in zip(a, b, strict=True):
        assert (x.index == y.index).all()
        assert (x.label == y.label).all()
        assert (x.image == y.image).all()


def _pillow(photos: Path) -> list[Image.Image]:
    return [Image.open(f).convert("RGB") for f in sorted(photos.glob("*/*.jpg"))[:40]]


@pytest.mark.parametrize("name", ["center", "resize", "resize_max", "bicubic", "hflip", "pad", "vflip"])
def test_pixels_are_torchvisions(make: Make, pack: Path, photos: Path, name: str) -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2")
    bicubic = v2.InterpolationMode.BICUBIC
    ours, theirs = {
        "center": ([T.CenterCrop(100)], [v2.CenterCrop(100)]),
        "resize": ([T.Resize(96), T.CenterCrop(80)], [v2.Resize(96), v2.CenterCrop(80)]),
        "resize_max": (
            [T.Resize(60, max_size=70), T.CenterCrop(50)],
            [v2.Resize(60, max_size=70), v2.CenterCrop(50)],
        ),
        "bicubic": ([T.Resize((70, 90), "bicubic")], [v2.Resize((70, 90), bicubic)]),
        "hflip": (
            [T.Resize((90, 60)), T.RandomHorizontalFlip(1)],
            [v2.Resize((90, 60)), v2.RandomHorizontalFlip(1)],
        ),
        "pad": ([T.CenterCrop(300)], [v2.CenterCrop(300)]),
        "vflip": ([T.CenterCrop(64), T.RandomVerticalFlip(1)], [v2.CenterCrop(64), v2.RandomVerticalFlip(1)]),
    }[name]  # fmt: skip
    got = np.concatenate([b.image for b in epoch(make(pack, batch_size=64, transforms={"image": ours}))])
    transform = v2.Compose(theirs)
    for i, image in enumerate(_pillow(photos)):
        want = np.asarray(transform(image)).astype(int)
        assert got[i].shape == want.shape
        off = np.abs(got[i] - want)
        # Pillow's bicubic itself is a few levels off its definition here and there.
        assert (off > 1).sum() <= (5 if name == "bicubic" else 0), f"record {i}"
        assert off.max() <= 5, f"record {i}"


def test_random_crop_is_a_box_of_the_image(make: Make, pack: Path, photos: Path) -> None:
    loader = make(pack, batch_size=64, transforms={"image": [T.RandomCrop(48)]}, seed=3)
    got = next(iter(loader)).image
    for i, image in enumerate(_pillow(photos)):
        whole = np.asarray(image)
        windows = np.lib.stride_tricks.sliding_window_view(whole, (48, 48, 3))[:, :, 0]
        corner = (windows[:, :, 0, 0] == got[i, 0, 0]).all(-1)
        assert any((windows[y, x] == got[i]).all() for y, x in np.argwhere(corner)), f"record {i}"


def test_dtypes_and_layouts(make: Make, pack: Path) -> None:
    torch = pytest.importorskip("torch")
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    base = [T.CenterCrop(32)]
    plain = next(iter(make(pack, batch_size=16, transforms={"image": base}))).image.copy()
    want = (plain.astype(np.float32) / 255 - np.float32(mean)) / np.float32(std)
    for dtype, tolerance in (("float32", 1e-5), ("float16", 2e-3), ("bfloat16", 2e-2)):
        ops = [*base, T.ToDtype(dtype, scale=True), T.Normalize(mean, std)]
        for layout in ("NCHW", "NHWC", "channels_last"):
            field = stoker.Field("image", ops, layout=layout)
            batch = next(iter(make(pack, batch_size=16, transforms={"image": field}, output="torch")))
            assert batch.image.dtype == getattr(torch, dtype)
            image = batch.image.float().numpy()
            got = image if layout == "NHWC" else image.transpose(0, 2, 3, 1)
            assert np.abs(got - want).max() <= tolerance
            assert batch.image.is_contiguous(
                memory_format=torch.channels_last if layout == "channels_last" else torch.contiguous_format
            )
    first = stoker.Field("image", base, layout="NCHW")
    u8 = next(iter(make(pack, batch_size=16, transforms={"image": first}))).image
    assert (u8.transpose(0, 2, 3, 1) == plain).all()


def test_images_as_they_are_stored_come_in_the_layout(binary: str, make: Make, photos: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    raw = tmp_path / "raw"
    args = [binary, "pack", str(photos), str(raw), "--images", "raw", "--resize", "32x24"]
    subprocess.run(args, check=True, capture_output=True)
    stored = next(iter(make(raw, batch_size=4))).image
    assert stored.shape == (4, 24, 32, 3)
    first = {"transforms": {"image": stoker.Field("image", layout="NCHW")}}
    options: list[dict[str, Any]] = [first, {"output": "torch"}]
    for more in options:
        batch = next(iter(make(raw, batch_size=4, **more)))
        assert (np.asarray(batch.image).transpose(0, 2, 3, 1) == stored).all()


def test_orientation_is_applied_when_asked_for(make: Make, binary: str, tmp_path: Path) -> None:
    from PIL import ImageOps

    folder = tmp_path / "turned"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (6, 8, 3)).astype(np.uint8).repeat(8, 0).repeat(8, 1)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x112] = orientation
        Image.fromarray(pixels).save(folder / f"{orientation}.jpg", exif=exif, quality=95, subsampling=0)
    stored = [np.asarray(Image.open(f)) for f in sorted(folder.iterdir())]
    turned = [np.asarray(ImageOps.exif_transpose(Image.open(f))) for f in sorted(folder.iterdir())]
    sources = [folder]
    for codec in ("keep", "dct"):
        sources.append(tmp_path / codec)
        cli(binary, "pack", folder, sources[-1], "--images", codec)
    crop = {"image": [T.CenterCrop(32)]}
    for source in sources:
        for apply, want in ((False, stored), (True, turned)):
            batch = next(iter(make(source, batch_size=8, transforms=crop, apply_orientation=apply)))
            for got, image in zip(batch["image"], want, strict=True):
                y, x = (image.shape[0] - 32) // 2, (image.shape[1] - 32) // 2
                np.testing.assert_array_equal(got, image[y : y + 32, x : x + 32])


def test_two_views_of_one_field(make: Make, pack: Path) -> None:
    views = {
        "a": stoker.Field("image", [T.RandomResizedCrop(32)]),
        "b": stoker.Field("image", [T.RandomResizedCrop(32)]),
        "small": stoker.Field("image", [T.Resize((8, 8))], layout="NCHW"),
    }
    batch = next(iter(make(pack, batch_size=16, transforms=views)))
    assert batch.keys() == ["a", "b", "small", "label", "index"]
    assert batch.small.shape == (16, 3, 8, 8)
    assert (batch.a != batch.b).any()


def test_engine_refuses(make: Make, pack: Path, tmp_path: Path) -> None:
    with pytest.raises(stoker.ConfigError):
        make(tmp_path / "nowhere", batch_size=2)
    with pytest.raises(stoker.ConfigError, match="size"):
        make(pack, batch_size=2, transforms={"image": [T.Resize(20)]})
    with pytest.raises(stoker.ConfigError, match="image"):
        make(pack, batch_size=2, transforms={"imgae": [T.CenterCrop(20)]})
    wait_for(lambda: not children(os.getpid()))


def test_stats(make: Make, pack: Path) -> None:
    loader = make(pack, batch_size=16, transforms=CROP)
    epoch(loader)
    stats = loader.stats()
    assert stats["batches"] == len(loader)
    assert stats["held"] == 0
    assert stats["wait_seconds"] > 0
    assert stats["engine"]["records"] >= COUNT
    assert {s["name"] for s in stats["engine"]["stages"]} >= {"fetch", "decode"}


# --- resume ----------------------------------------------------------------


def test_resume_with_other_threads_and_prefetch(make: Make, pack: Path) -> None:
    options: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 9, "transforms": CROP}
    reference = make(pack, threads=1, **options)
    batches = epoch(reference) + epoch(reference)
    steps = len(reference)
    for stop, threads, prefetch in ((1, 2, 2), (5, 3, 8), (steps, 1, 3), (steps + 4, 2, 5)):
        loader = make(pack, threads=2, limits=stoker.Limits(prefetch=4), **options)
        delivered = 0
        while delivered < stop:
            for _ in loader:
                delivered += 1
                if delivered == stop:
                    break
        state = loader.state_dict()
        loader.close()
        other = make(pack, threads=threads, limits=stoker.Limits(prefetch=prefetch), **options)
        other.load_state_dict(state)
        rest = epoch(other)
        if stop < steps:
            rest += epoch(other)
        assert len(rest) == 2 * steps - stop
        for got, want in zip(rest, batches[stop:], strict=True):
            assert (got.epoch, got.step) == (want.epoch, want.step)
            assert (got.index == want.index).all()
            assert (got.image == want.image).all()
            assert (got.label == want.label).all()


def test_resume_with_another_world_size(make: Make, pack: Path) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 9, "transforms": CROP}
    whole = make(pack, batch_size=24, **options)
    reference = epoch(whole)
    index = np.concatenate([b.index for b in reference])
    pixels = np.concatenate([b.image for b in reference])
    # Two ranks of 12, stopped after 3 steps of 24, then three ranks of 8, then one of 24.
    loaders = [make(pack, batch_size=12, ranks=stoker.Ranks(r, 2), **options) for r in range(2)]
    states = []
    for loader in loaders:
        it = iter(loader)
        for _ in range(3):
            next(it)
        states.append(loader.state_dict())
    assert states[0] == states[1], "the state counts the global batch"
    assert states[0]["position"] == 72
    for world in (3, 1):
        shards = []
        for rank in range(world):
            loader = make(pack, batch_size=24 // world, ranks=stoker.Ranks(rank, world), **options)
            loader.load_state_dict(states[0])
            shards.append(epoch(loader))
            loader.close()
        at = 72
        for parts in zip(*shards, strict=True):
            got_index = np.concatenate([p.index for p in parts])
            got_pixels = np.concatenate([p.image for p in parts])
            assert (got_index == index[at : at + len(got_index)]).all()
            assert (got_pixels == pixels[at : at + len(got_index)]).all()
            at += len(got_index)
        assert at == COUNT


def test_resume_with_another_batch_size(make: Make, pack: Path) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 9, "transforms": CROP}
    whole = np.concatenate([b.index for b in epoch(make(pack, batch_size=50, **options))])
    loader = make(pack, batch_size=24, **options)
    next(iter(loader))
    other = make(pack, batch_size=50, **options)
    other.load_state_dict(loader.state_dict())
    assert np.concatenate([b.index for b in epoch(other)]).tolist() == whole[24:].tolist()
    assert [len(b) for b in epoch(other)] == [50, 50, 50, 50, 3], "then whole epochs again"


def test_state_of_other_data(make: Make, pack: Path, photos: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(photos, other)
    next(other.glob("*/*.jpg")).unlink()
    state = make(pack, batch_size=8, transforms=CROP).state_dict()
    with pytest.raises(stoker.StateMismatch, match="another manifest"):
        make(other, batch_size=8, transforms=CROP).load_state_dict(state)


# --- records that cannot be read -------------------------------------------


@pytest.fixture
def damaged(photos: Path, tmp_path: Path) -> Path:
    """Return a folder with one truncated image."""
    out = tmp_path / "damaged"
    shutil.copytree(photos, out)
    victim = sorted(out.glob("*/*.jpg"))[17]
    victim.write_bytes(victim.read_bytes()[:300])
    return out


def test_bad_record_raises(make: Make, damaged: Path) -> None:
    loader = make(damaged, batch_size=8, transforms=CROP)
    with pytest.raises(stoker.RecordError) as caught:
        epoch(loader)
    assert caught.value.record == 17
    assert sorted(damaged.glob("*/*.jpg"))[17].name in caught.value.name
    assert caught.value.reason


def test_bad_record_is_skipped(make: Make, damaged: Path) -> None:
    loader = make(damaged, batch_size=8, transforms=CROP, on_error="skip")
    with pytest.warns(stoker.SkippedRecords, match="1 record was replaced"):
        batches = epoch(loader)
    assert [len(b) for b in batches] == [8] * 25 + [3]
    index = np.concatenate([b.index for b in batches])
    assert 17 not in index
    assert loader.stats()["skipped"] == 1


# --- stuck disks and deaths ------------------------------------------------


@pytest.fixture
def stuck(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with some files that can never be read to the end: the disk does not answer."""
    out = tmp_path / "stuck"
    shutil.copytree(photos, out)
    for path in sorted(out.glob("*/*.jpg"))[100:]:
        path.rename(path.with_name(path.stem + "-stuck.jpg"))
    monkeypatch.setenv("STOKER_TEST_FAULTS", "stuck,name=*-stuck.jpg")
    return out


def test_stuck_disk(make: Make, stuck: Path) -> None:
    loader = make(stuck, batch_size=8, transforms=CROP, limits=stoker.Limits(timeout=2.5))
    pid = children(os.getpid())[0]
    seen = 0
    with pytest.raises(stoker.StokerTimeout, match=r"no batch within 2.5 s; the engine waits for: .*jpg") as caught:
        for _ in loader:
            seen += 1
    assert 0 < seen <= 12
    assert ".jpg" in caught.value.waiting
    loader.close()
    assert not alive(pid)


def test_ctrl_c_on_a_stuck_disk(make: Make, stuck: Path) -> None:
    loader = make(stuck, batch_size=8, transforms=CROP)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):  # and not a timeout
        for _ in loader:
            pass
    timer.join()
    loader.close()
    assert not children(os.getpid())


TRAINER = """
import os, sys, time, stoker
loader = stoker.Loader(sys.argv[1], batch_size=8, shuffle=True,
                       transforms={"image": [stoker.transforms.RandomResizedCrop(48)]})
print("ready", flush=True)
while True:
    for batch in loader:
        pass
"""


def trainer(source: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(source)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def engines() -> set[str]:
    """Return the engines of loaders that run, with the process that each is for."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if len(words) > 2 and words[1] == b"serve" and words[2].startswith(b"--fd="):
                found.add(f"{path.parent.name} {words[3].decode()}")
    return found


def test_killed_trainer_leaves_nothing(pack: Path, stuck: Path) -> None:
    rng = random.Random(3)
    shared = shared_memory()
    for round_ in range(5):
        with trainer(stuck if round_ == 4 else pack) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            engine = children(process.pid)
            assert len(engine) == 1
            if round_ == 4:
                time.sleep(0.5)
            time.sleep(rng.uniform(0, 0.5))
            process.kill()
            process.wait()
            wait_for(lambda e=engine[0]: not alive(e))  # type: ignore[misc]
    assert not left_in_memory(shared)


FORKING = TRAINER.replace(
    'print("ready", flush=True)',
    """
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
print(f"ready {child}", flush=True)""",
)


def test_killed_trainer_whose_forked_child_lives_on(pack: Path) -> None:
    """The child holds copies of everything that was open, yet the engine ends with its parent."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKING, str(pack)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    child = int(process.stdout.readline().split()[1])
    try:
        (engine,) = (p for p in children(process.pid) if p != child)
        process.kill()
        process.wait()
        wait_for(lambda: not alive(engine))
        assert alive(child)
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()


def test_trainer_killed_while_starting(pack: Path) -> None:
    rng = random.Random(4)
    for _ in range(5):
        process = trainer(pack)
        time.sleep(rng.uniform(0.05, 0.8))
        family = [process.pid, *children(process.pid)]
        process.kill()
        process.communicate()
        wait_for(lambda f=family: not any(alive(p) for p in f))  # type: ignore[misc]
        assert f"--parent={process.pid}" not in " ".join(engines())


def test_loop_goes_on_with_another_engine(make: Make, pack: Path) -> None:
    rng = random.Random(5)
    options: dict[str, Any] = {
        "batch_size": 8,
        "shuffle": True,
        "seed": 1,
        "transforms": CROP,
        "limits": stoker.Limits(prefetch=2),
    }
    reference = epoch(make(pack, **options))
    make_files = open_files()
    loader = make(pack, **options)
    seen: list[stoker.Batch] = []
    kills = set(rng.sample(range(len(reference)), 4))
    with pytest.warns(stoker.EngineRestarted):
        for batch in loader:
            if len(seen) in kills:
                os.kill(loader._epochs.connection._process.pid, signal.SIGKILL)
            seen.append(batch.copy())
    assert 0 < loader.stats()["restarts"] <= 4
    assert len(seen) == len(reference)
    for got, want in zip(seen, reference, strict=True):
        assert (got.index == want.index).all()
        assert (got.image == want.image).all()
    del got, want, batch
    loader.close()
    assert len(open_files()) <= len(make_files), "descriptors of dead engines are closed"


@pytest.mark.parametrize("threads", [1, 4])
def test_record_that_crashes_the_engine(
    make: Make, photos: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """Records in flight in a crash are decoded one at a time, so that the second crash tells which one it was."""
    options: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 1, "transforms": CROP, "threads": threads}
    reference = [b.copy() for b in make(photos, **options)]
    monkeypatch.setenv("STOKER_TEST_CRASH", "17")
    loader = make(photos, on_error="skip", **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seen = [b.copy() for b in loader]
    first, second, last = [str(w.message) for w in caught]
    assert first.endswith("with exit code 2; another engine goes on with the next batch")
    assert "record 17 was decoded in both crashes and is bad from now on" in second
    assert re.search(r"record 17 \(.*it crashed the engine twice", last)
    assert loader.stats()["restarts"] == 2
    for got, want in zip(seen, reference, strict=True):
        good = want.index != 17
        assert (got.index == np.where(good, want.index, 18)).all()
        assert (got.image == want.image)[good].all()
    loader = make(photos, **options)
    with (
        pytest.warns(stoker.EngineRestarted),
        pytest.raises(stoker.RecordError, match=r"record 17 \(.*it crashed the engine twice"),
    ):
        for _ in loader:
            pass


@pytest.mark.parametrize("number", [0, 1])
def test_record_of_an_epoch_that_crashes_the_engine(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Sequences differ per epoch: the record is bad in the epoch of the crashes."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"tokens": list(range(i, i + 7))}) + "\n" for i in range(100)))
    limits = stoker.Limits(prefetch=2)  # few batches of the next epoch, with crashes of its own
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 1, "limits": limits}
    data = stoker.open(path).sequences(16)
    reference = make(data, **options)
    reference.set_epoch(number)
    want = [b.copy() for b in reference]
    monkeypatch.setenv("STOKER_TEST_CRASH", "9")
    loader = make(data, on_error="skip", **options)
    loader.set_epoch(number)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seen = [b.copy() for b in loader]
    said = "\n".join(str(w.message) for w in caught)
    assert f"record 9{' of epoch 1' if number else ''} was decoded in both crashes" in said
    for got, expected in zip(seen, want, strict=True):
        good = expected.index != 9
        assert (got.input == expected.input)[good].all()


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_signals_for_the_job_leave_the_engine_alone(make: Make, pack: Path) -> None:
    """A batch system sends SIGTERM to all processes of a job. The trainer decides how to react."""
    before = set(children(os.getpid()))
    loader = make(pack, batch_size=8, transforms=CROP)
    (engine,) = set(children(os.getpid())) - before
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        os.kill(engine, sig)
    assert sum(len(b) for b in loader) == COUNT


def test_ring_has_no_name(make: Make, pack: Path) -> None:
    before = shared_memory()
    loader = make(pack, batch_size=8, transforms=CROP)
    next(iter(loader))
    assert not left_in_memory(before)


# --- the shared engine -----------------------------------------------------


@pytest.fixture
def server(
    binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    path = tmp_path / "engine.sock"
    process = subprocess.Popen([binary, "serve", "--socket", str(path)], stderr=subprocess.PIPE, text=True)
    wait_for(path.exists)
    monkeypatch.setenv("STOKER_SOCKET", str(path))
    yield path, process
    process.kill()
    process.communicate()


def test_shared_engine(make: Make, pack: Path, server: tuple[Path, subprocess.Popen[str]]) -> None:
    path, process = server
    a = make(pack, batch_size=16, shuffle=True, seed=1, transforms=CROP)
    b = make(pack, batch_size=16, shuffle=True, seed=1, transforms=CROP)
    for x, y in zip(a, b, strict=True):
        assert (x.image == y.image).all()
    a.close()
    assert next(iter(b)).epoch == 1
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=120)
    assert not path.exists()
    with pytest.raises(stoker.EngineDied, match="closed the connection"):
        for _ in b:
            pass
    with pytest.raises(stoker.StokerError, match=r"hint: start one with: stoker serve --socket"):
        iter(b)


def test_shared_engine_is_replaced_after_a_kill(
    binary: str, make: Make, pack: Path, server: tuple[Path, subprocess.Popen[str]]
) -> None:
    path, process = server
    loader = make(pack, batch_size=8, transforms=CROP, limits=stoker.Limits(prefetch=2))
    it = iter(loader)
    first = next(it).index.tolist()
    second = subprocess.run([binary, "serve", "--socket", str(path)], capture_output=True, text=True, timeout=120)
    assert second.returncode == 1
    assert "another engine" in second.stderr
    process.kill()
    process.wait()
    assert path.exists(), "kill -9 leaves the socket"
    with pytest.raises(stoker.EngineDied):
        for batch in it:
            first = batch.index.tolist()
    again = subprocess.Popen([binary, "serve", "--socket", str(path)], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: _answers(path))
        assert next(iter(loader)).index.tolist() == [i + 8 for i in first]
    finally:
        again.terminate()
        again.wait()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        return s.connect_ex(str(path)) == 0


def test_many_clients(pack: Path, server: tuple[Path, subprocess.Popen[str]]) -> None:
    assert server[0].exists()
    counts: list[int] = []

    def run(seed: int) -> None:
        with stoker.Loader(
            pack, 32, shuffle=True, seed=seed, transforms=CROP, limits=stoker.Limits(memory="100MB")
        ) as loader:
            counts.append(sum(len(b) for b in loader))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert counts == [COUNT] * 6
