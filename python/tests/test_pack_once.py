"""Work that is done once, when packing: the results in the loader and in other libraries, with the real engine."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import stoker
from stoker import transforms as st
from support import cli

Make = Callable[..., stoker.Loader]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def table(path: Path, first: int, last: int, classes: list[str]) -> Path:
    lines = ["n,cls,text"]
    lines += [f"{i},{classes[i % len(classes)]},record {i}" for i in range(first, last)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_append_and_remove(make: Make, binary: str, tmp_path: Path) -> None:
    def pack(*args: object) -> None:
        cli(binary, "pack", *args)

    kind = ["--kind", "cls=label"]
    out = tmp_path / "p"
    pack(table(tmp_path / "a.csv", 0, 100, ["cat", "dog"]), out, *kind)
    old = make(out, 10, shuffle=True)
    first = next(iter(old))
    pack(table(tmp_path / "b.csv", 100, 130, ["ant", "dog", "eel"]), out, "--append", *kind)
    pack("--remove", 'n >= 20 and n < 40 or cls == "eel"', out)
    loader = make(out, 16, shuffle=True, drop_last=False)
    rows: dict[int, Any] = {}
    for batch in loader:
        for n, cls, text in zip(batch.n, batch.cls, batch.text, strict=True):
            rows[int(n)] = (int(cls), str(text))
    classes = ["cat", "dog", "ant", "eel"]
    want = {}
    for i in range(130):
        cls = ["cat", "dog"][i % 2] if i < 100 else ["ant", "dog", "eel"][i % 3]
        if not (20 <= i < 40 or cls == "eel"):
            want[i] = (classes.index(cls), f"record {i}")
    assert rows == want
    # The loader that was open before continues with its data.
    seen = sorted([int(n) for n in first.n] + [int(n) for b in old for n in b.n])
    assert len(seen) >= 100 and set(seen) == set(range(100))
    # Its state belongs to other records.
    state = loader.state_dict()
    with pytest.raises(stoker.StokerError):
        make(tmp_path / "a.csv", 16, shuffle=True, drop_last=False).load_state_dict(state)
    pack("--compact", out)
    again = make(out, 16, shuffle=True, drop_last=False)
    assert sorted(int(n) for b in again for n in b.n) == sorted(want)


def rows(path: Path) -> dict[str, list[Any]]:
    """Read a pack as other tools do."""
    tables = [pa.ipc.open_file(f).read_all() for f in sorted(path.glob("*.arrow"))]
    return pa.concat_tables(tables).to_pydict()


def pixels(table: dict[str, list[Any]], i: int, name: str = "image", channels: int = 3) -> np.ndarray[Any, Any]:
    shape = (table[name + "_height"][i], table[name + "_width"][i], channels)
    return np.frombuffer(table[name][i]["bytes"], np.uint8).reshape(shape)


def short(im: Image.Image, n: int, how: Image.Resampling) -> Image.Image:
    w, h = im.size
    size = (n, n * h // w) if w <= h else (n * w // h, n)
    return im.resize(size, how)


@pytest.mark.parametrize("how", ["bilinear", "bicubic"])
def test_pixels_equal_pillow(binary: str, photos: Path, tmp_path: Path, how: str) -> None:
    filter_ = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}[how]
    out = tmp_path / "p"
    options = ["--images", "raw", "--resize", "96", "--crop", "80x64", "--interpolation", how]
    cli(binary, "pack", photos, out, *options)
    cli(binary, "pack", photos, tmp_path / "g", "--grayscale", *options)
    packed, gray = rows(out), rows(tmp_path / "g")
    for i in range(0, 203, 9):
        with Image.open(photos / packed["image"][i]["path"]) as im:
            want = short(im.convert("RGB"), 96, filter_)
        left, top = round((want.size[0] - 80) / 2), round((want.size[1] - 64) / 2)
        want = want.crop((left, top, left + 80, top + 64))
        got = pixels(packed, i)
        assert got.shape == (64, 80, 3)
        assert np.abs(got.astype(int) - np.asarray(want)).max() <= 1
        luma = np.asarray(Image.fromarray(got).convert("L"))
        assert np.abs(pixels(gray, i, channels=1)[..., 0].astype(int) - luma).max() <= 1
    assert "--resize 96 --crop 80x64" in cli(binary, "inspect", out)


def test_jpegs_again(make: Make, binary: str, photos: Path, tmp_path: Path) -> None:
    raw, jpeg, dct = (tmp_path / name for name in ("raw", "jpeg", "dct"))
    cli(binary, "pack", photos, raw, "--images", "raw", "--resize", "64")
    cli(binary, "pack", photos, jpeg, "--images", "keep", "--resize", "64", "--reencode-quality", "90")
    cli(binary, "pack", photos, dct, "--resize", "64", "--reencode-quality", "90")
    a, b = rows(raw), rows(jpeg)
    for i in range(0, 203, 17):
        file = io.BytesIO()
        Image.fromarray(pixels(a, i)).save(file, "JPEG", quality=90)
        with Image.open(file) as want, Image.open(io.BytesIO(b["image"][i]["bytes"])) as got:
            assert got.layers == (3 if want.mode == "RGB" else 1) or got.mode == "L"
            if got.mode == "RGB":
                assert got.quantization == want.quantization
                assert np.abs(np.asarray(got).astype(int) - np.asarray(want)).mean() < 0.1
    one, two = (make(p, 16, transforms={"image": [st.CenterCrop(48)]}) for p in (jpeg, dct))
    for x, y in zip(one, two, strict=True):
        assert np.array_equal(x.image, y.image)  # the pixels of the JPEGs, bit for bit


def test_masks_move_alike(binary: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for kind in ("images", "masks"):
        (tmp_path / "s" / kind).mkdir(parents=True)
    for i in range(12):
        w, h = 40 + 7 * i, 90 - 3 * i
        Image.fromarray(rng.integers(0, 256, (h, w, 3), np.uint8)).save(tmp_path / f"s/images/{i:02d}.png")
        Image.fromarray(rng.integers(0, 200, (h, w), np.uint8)).save(tmp_path / f"s/masks/{i:02d}.png")
    fields = ["--field", "image=images/*.png", "--field", "mask=masks/*.png"]
    out = tmp_path / "p"
    cli(binary, "pack", tmp_path / "s", out, *fields, "--images", "raw", "--resize", "50x30", "--crop", "32x20")
    packed = rows(out)
    for i in range(12):
        with Image.open(tmp_path / f"s/masks/{i:02d}.png") as im:
            want = np.asarray(im.resize((50, 30), Image.Resampling.NEAREST))[5:25, 9:41]
        assert np.array_equal(pixels(packed, i, "mask", 1)[..., 0], want)


def test_resolutions(make: Make, binary: str, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "p"
    cli(binary, "pack", photos, out, "--images", "raw", "--resize", "32x32,48x48,64x64")
    kinds = {}
    for side in (32, 48, 64):
        cli(binary, "pack", photos, tmp_path / str(side), "--images", "raw", "--resize", f"{side}x{side}")
        kinds[side] = make(tmp_path / str(side), 20, shuffle=True, seed=3)
    options: Any = {"batch_size": 20, "shuffle": True, "seed": 3}
    largest = next(iter(make(out, **options)))
    assert largest.image.shape == (20, 64, 64, 3)
    # From one resolution to the next, in the middle of an epoch.
    state = None
    whole = {side: list(loader) for side, loader in kinds.items()}
    for k, side in enumerate((32, 48, 64)):
        loader = make(stoker.open(out).resolution(f"{side}x{side}"), **options)
        if state is not None:
            loader.load_state_dict(state)
        batches = iter(loader)
        for want in whole[side][3 * k : 3 * k + 3]:
            got = next(batches)
            assert np.array_equal(got.image, want.image) and np.array_equal(got.index, want.index)
        state = loader.state_dict()
    with pytest.raises(stoker.StokerError, match="has its images at 32x32, 48x48, 64x64"):
        make(stoker.open(out).resolution(40), 20)


def test_dedupe(make: Make, tmp_path: Path) -> None:
    source = tmp_path / "t.csv"
    source.write_text("n,text\n" + "".join(f"{i % 90},text {i % 70}\n" for i in range(500)))
    texts = [str(t) for b in make(stoker.open(source).dedupe("text"), 7, drop_last=False) for t in b.text]
    assert texts == [f"text {i}" for i in range(70)]
    assert sum(len(b.n) for b in make(stoker.open(source).dedupe(), 7, drop_last=False)) == 500
    with pytest.raises(stoker.StokerError, match="dedupe"):
        make(stoker.open(source).dedupe(*"text"), 7)


def test_variants(make: Make, tmp_path: Path) -> None:
    """A pack of variants has in each epoch every record once, as a loader would have made it in one of its epochs."""
    rng = np.random.default_rng(0)
    for i in range(20):
        folder = tmp_path / "photos" / f"class-{i % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (60 + i, 80 - i, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02d}.{'png' if i % 3 == 0 else 'jpg'}", quality=90)
    fields = {"image": [st.RandomResizedCrop(24), st.RandomHorizontalFlip(), st.ColorJitter(brightness=0.3)]}
    k = 3
    packed = stoker.pack(tmp_path / "photos", tmp_path / "p", transforms=fields, augment=k, seed=5)
    assert (packed.records, packed.unchanged) == (20, False)
    assert stoker.pack(tmp_path / "photos", tmp_path / "p", transforms=fields, augment=k, seed=5).unchanged
    plain = make(tmp_path / "photos", 8, shuffle=False, seed=5, transforms=fields, drop_last=False)
    want = [
        {int(i): image for b in plain for i, image in zip(b["index"], b.image.copy(), strict=True)} for _ in range(k)
    ]
    loader = make(packed.path, 8, shuffle=True, seed=1, drop_last=False)
    assert len(loader) == 3
    seen: list[set[int]] = [set() for _ in range(20)]
    epochs = []
    for _ in range(2 * k):
        epoch = {int(i): image for b in loader for i, image in zip(b["index"], b.image.copy(), strict=True)}
        assert set(epoch) == set(range(20))
        epochs.append(epoch)
        for i, image in epoch.items():
            (v,) = (v for v in range(k) if (image == want[v][i]).all())
            seen[i].add(v)
    assert seen == [set(range(k))] * 20
    again = make(packed.path, 8, shuffle=True, seed=1, drop_last=False)
    batches = iter(again)
    next(batches)
    state = again.state_dict()
    resumed = make(packed.path, 8, shuffle=True, seed=1, drop_last=False)
    resumed.load_state_dict(state)
    for batch in resumed:
        for i, image in zip(batch["index"], batch.image, strict=True):
            assert (image == epochs[0][int(i)]).all()
    for bad, message in (
        ({"augment": 2}, "say which ones"),
        ({"augment": 0, "transforms": fields}, "augment must be a whole number of at least 1, not 0"),
        ({"map": str, "transforms": fields}, "map cannot be given"),
        ({"transforms": {"image": [st.RandomHorizontalFlip()]}, "augment": 2}, "size"),
    ):
        with pytest.raises(stoker.StokerError, match=message):
            stoker.pack(tmp_path / "photos", tmp_path / "bad", **bad)


def test_variants_of_what_python_has(make: Make, tmp_path: Path) -> None:
    images = [np.random.default_rng(i).integers(0, 256, (40, 50, 3), np.uint8) for i in range(300)]
    masks = [image[:, :, 0] // 64 for image in images]
    data = [
        {"image": Image.fromarray(a), "mask": Image.fromarray(m), "label": i}
        for i, (a, m) in enumerate(zip(images, masks, strict=True))
    ]
    moves = [st.RandomCrop(32), st.RandomVerticalFlip()]
    fields = {"image": moves, "mask": stoker.Field("mask", moves, follow="image")}
    packed = stoker.pack(data, tmp_path / "p", transforms=fields, augment=2, workers=1, shard_size="1MiB")
    loader = make(packed.path, 50, shuffle=True, transforms={"image": [], "mask": []})
    for _ in range(2):
        for batch in loader:
            assert batch.image.shape[1:] == (32, 32, 3)
            assert (batch.image[:, :, :, 0] // 64 == batch.mask).all()
    # The other epoch has the other variant.
    first, second = (
        {int(i): a for b in loader for i, a in zip(b["index"], b.image.copy(), strict=True)} for _ in range(2)
    )
    assert sum((first[i] != second[i]).any() for i in range(300)) > 250


def _phash(image: Image.Image, resample: Image.Resampling = Image.Resampling.BILINEAR) -> np.ndarray:
    """The hash as docs/how-to/pack.md has it; with Lanczos, imagehash's phash."""
    gray = np.asarray(image.convert("L").resize((32, 32), resample), np.float64)
    u, x = np.mgrid[:8, :32]
    cosines = np.cos(np.pi * (2 * x + 1) * u / 64)
    low = cosines @ gray @ cosines.T
    return (low > np.median(low)).ravel()


def test_similar_images(binary: str, tmp_path: Path) -> None:
    """Copies of photographs are found, with the distances that the definition gives."""
    photos = tmp_path / "photos"
    cli(binary, "gen", "images", photos, "--count", "24", "--seed", "3")
    originals = sorted(photos.rglob("*.jpg"))
    images: dict[str, Image.Image] = {}
    for path in originals[:8]:
        image = Image.open(path).convert("RGB")
        copies = {
            "small.jpg": (image.resize((image.width // 2, image.height // 2)), {"quality": 85}),
            "bad.jpg": (image, {"quality": 25}),
            "again.png": (image, {}),
            "bright.png": (Image.fromarray((np.asarray(image) * 0.9 + 12).astype(np.uint8)), {}),
        }
        for name, (copy, options) in copies.items():
            copy.save(path.parent / f"{path.stem}-{name}", **options)
    for path in sorted(photos.rglob("*.*")):
        images[str(path.relative_to(photos))] = Image.open(path).convert("RGB")
    found = json.loads(cli(binary, "inspect", photos, "--similar=11", "--json"))
    assert (found["images"], found["unreadable"], found["distance"]) == (24 + 32, 0, 11)
    names = list(images)
    got = {}
    for pair in found["pairs"]:
        a, b = (next(n for n in names if m.endswith(n)) for m in pair["names"])
        got[frozenset((a, b))] = pair["distance"]
        # Gray values differ by a level here and there, and so may bits at the median.
        assert abs(int((_phash(images[a]) != _phash(images[b])).sum()) - pair["distance"]) <= 4
        lanczos = Image.Resampling.LANCZOS
        assert abs(int((_phash(images[a], lanczos) != _phash(images[b], lanczos)).sum()) - pair["distance"]) <= 8
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            same = Path(a).stem.split("-")[0] == Path(b).stem.split("-")[0] and Path(a).parent == Path(b).parent
            distance = int((_phash(images[a]) != _phash(images[b])).sum())
            if same and distance > 0 and frozenset((a, b)) in got:
                assert got[frozenset((a, b))] <= 6
            if not same and distance > 15:
                assert frozenset((a, b)) not in got
    # Each copy is in a pair. With equal hashes, the pair is with the first record of its kind.
    assert found["records"] >= 32
    command = [binary, "pack", str(photos), str(tmp_path / "p"), "--drop-similar=6", "--json"]
    kept = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(kept.stdout)["records"] <= 24
