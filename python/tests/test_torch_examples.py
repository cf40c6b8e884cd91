"""Datasets of Hugging Face with images: functions of the program run as with torch, on pixels of the engine."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import gc
import io
import random
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import encoded

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
hf = pytest.importorskip("datasets")

import PIL.Image  # noqa: E402
import PIL.ImageOps  # noqa: E402
import PIL.JpegImagePlugin  # noqa: E402
import torch.utils.data as tud  # noqa: E402
from test_torch_recognise import MEAN, STD, picture  # noqa: E402
from torchvision import transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

from stoker.torch import DataLoader  # noqa: E402
from stoker.torch._recognise import _arrow_images, _functions, plan  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create", r"ignore:os\.fork\(\) was called")
IMAGES = 12
EVAL = v1.Compose([v1.Resize(48), v1.CenterCrop(40), v1.ToTensor(), v1.Normalize(MEAN, STD)])
TRAIN = v1.Compose([v1.RandomResizedCrop(24), v1.RandomHorizontalFlip(), v1.ToTensor()])


def jpeg(i: int, mode: str = "RGB", **options: Any) -> bytes:
    return encoded(picture(i, 60 + 5 * i, 90 - 3 * i).convert(mode), "JPEG", quality=90, **options)


def rows() -> list[bytes]:
    return [jpeg(i, "L" if i == 7 else "RGB") for i in range(IMAGES)]


def table(images: list[Any], **more: Any) -> Any:
    features = hf.Features({"image": hf.Image(**more), "label": hf.ClassLabel(names=[str(i) for i in range(IMAGES)])})
    return hf.Dataset.from_dict({"image": images, "label": [i % IMAGES for i in range(len(images))]}, features=features)


def in_memory(_: Path) -> Any:
    return table([{"bytes": b, "path": None} for b in rows()])


def in_files(folder: Path) -> Any:
    for i, b in enumerate(rows()):
        (folder / f"{i}.jpg").write_bytes(b)
    return table([str(folder / f"{i}.jpg") for i in range(IMAGES)])


def mapped(folder: Path) -> Any:
    table([{"bytes": b, "path": f"{i}.jpg"} for i, b in enumerate(rows())]).save_to_disk(folder / "saved", num_shards=3)
    return hf.load_from_disk(str(folder / "saved"))


def chosen(folder: Path) -> Any:
    data = hf.concatenate_datasets([in_memory(folder), mapped(folder)])
    return data.shuffle(seed=2).select(range(3, 20)).flatten_indices().select([5, 1, 1, 12, 9, 0, 3])


DATA = {"in memory": in_memory, "in files": in_files, "mapped": mapped, "chosen": chosen}


def as_transformers_does(transform: Any, column: str = "image") -> Callable[[Any], Any]:
    """Return a function as its example for image classification has it."""
    args = argparse.Namespace(image_column_name=column)

    def transforms(example_batch: Any) -> Any:
        example_batch["pixel_values"] = [transform(pil.convert("RGB")) for pil in example_batch[args.image_column_name]]
        return example_batch

    return transforms


def with_sizes(transform: Any) -> Callable[[Any], Any]:
    """Return such a function that asks images for more than their pixels."""
    return lambda batch: {
        **batch, "pixel_values": [transform(i.convert("RGB")) for i in batch["image"]],
        "size": [i.size for i in batch["image"]],
    }  # fmt: skip


def collate_fn(examples: Any) -> Any:
    pixel_values = torch.stack([example["pixel_values"] for example in examples])
    return {"pixel_values": pixel_values, "labels": torch.tensor([example["label"] for example in examples])}


def both(data: Any, **arguments: Any) -> tuple[Any, list[Any], list[Any]]:
    """Return our loader, torch's batches and ours, which the engine must have had a part in."""
    made = []
    for kind in (tud.DataLoader, DataLoader):
        loader = kind(data, generator=torch.Generator().manual_seed(3), **{"batch_size": 5, **arguments})
        made.append(list(loader))
    assert type(loader._stoker_path).__name__ == "EngineWay", loader.explain()
    loader._stoker_path.plan.close()
    return loader, *made


def close(got: Any, want: Any) -> bool:
    if isinstance(want, dict):
        return list(got) == list(want) and all(close(got[k], want[k]) for k in want)
    if isinstance(want, list | tuple):
        return len(got) == len(want) and all(map(close, got, want))
    if isinstance(want, torch.Tensor):
        scale = 1.01 / 255 / min(STD)
        return got.shape == want.shape and got.dtype == want.dtype and float((got - want).abs().max()) <= scale
    if isinstance(want, PIL.Image.Image):
        return (type(got), got.mode, got.size, got.info) == (type(want), want.mode, want.size, want.info) and bool(
            (np.asarray(got) == np.asarray(want)).all()
        )
    return bool(got == want)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("where", DATA)
def test_batches_equal_torchs(tmp_path: Path, where: str, workers: int) -> None:
    data = DATA[where](tmp_path).with_transform(as_transformers_does(EVAL))
    loader, expected, got = both(data, collate_fn=collate_fn, shuffle=True, num_workers=workers)
    assert close(got, expected)
    assert loader._stoker_path.plan._tally.sums() == (len(data), len(data))
    said = loader.explain()
    assert "Resize, CenterCrop, ToTensor, Normalize" in said and "transforms is your code" in said
    assert ("without images" in said) == (workers > 0)
    if where == "mapped":
        column = data._data.table.column("image")
        memory = _arrow_images.located(column, None)
        assert memory.beside is None, "its images were copied"


OTHERS: dict[str, Any] = {
    "no function, own collate": (None, lambda b: torch.stack([EVAL(e["image"].convert("RGB")) for e in b])),
    "mode of the column": (lambda b: {"x": [EVAL(i) for i in b["image"]]}, None),
    "pictures": (lambda b: {"x": [v1.functional.to_tensor(CROP(i.convert(mode="RGB"))) for i in b["image"]]}, None),
    "v2": (lambda b: {"x": list(map(V2, [i.convert("RGB") for i in b["image"]])), "y": b["label"]}, None),
    "split": (lambda b: {"x": [SPLIT(i.convert("RGB").copy()) for i in b["image"]]}, None),
    "columns": (lambda b: {"x": [EVAL(i.convert("RGB")) for i in b.pop("image")], **b}, None),
    "twice": (lambda b: {"x": [EVAL(i.convert("RGB")).mul_(2) + EVAL(i.convert("RGB")) for i in b["image"]]}, None),
}
CROP = v1.Compose([v1.Resize(48), v1.CenterCrop(40)])
V2 = v2.Compose([v2.ToImage(), v2.Resize((30, 30)), v2.ToDtype(torch.float32, scale=True)])
SPLIT = v1.Compose([v1.Resize((40, 40)), v1.RandomRotation((9, 9), v1.InterpolationMode.BICUBIC), v1.ToTensor()])


@pytest.mark.parametrize("name", OTHERS)
def test_other_forms(tmp_path: Path, name: str) -> None:
    function, collate = OTHERS[name]
    data = table([{"bytes": b, "path": None} for b in rows()], mode="RGB" if name.startswith("mode") else None)
    if function is not None:
        data.set_transform(function, columns=["image"] if name == "split" else None)
    for workers in (0, 1):
        loader, expected, got = both(data, collate_fn=collate, num_workers=workers)
        scale = 3 if name == "twice" else 1
        assert close([b if isinstance(b, torch.Tensor) else b["x"] / scale for b in got],
                     [b if isinstance(b, torch.Tensor) else b["x"] / scale for b in expected])  # fmt: skip
        assert loader._stoker_path.plan._tally.sums()[1] == IMAGES


class Sees:
    """A function with a state, which reads everything about an image."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform
        self.calls = 0

    def __call__(self, batch: Any) -> Any:
        self.calls += 1
        out = []
        for i, image in enumerate(batch["image"]):
            rgb = image.convert("RGB")
            about = [type(image), type(rgb), image.format, image.mode, image.size, sorted(image.info), rgb.readonly,
                     image.getexif(), image.filename, image.tile, image.fp, rgb.info, image.getbands()]  # fmt: skip
            what = (self.calls + i) % 6
            if what == 0 and image.width > 60:
                out.append((about, self.transform(rgb)))
            elif what == 1:
                out.append((about, rgb.getpixel((1, 2)), image.getpixel((1, 2)), self.transform(rgb)))
            elif what == 2:
                rgb.putpixel((20, 20), (1, 2, 3))
                out.append((about, self.transform(rgb), np.asarray(rgb).sum()))
            elif what == 3:
                out.append((about, self.transform(rgb.rotate(90)), copy.copy(image), copy.deepcopy(rgb), image.copy()))
            elif what == 4:
                out.append((about, image.im.getpixel((3, 3)), image.draft("L", (9, 9)), rgb == image.convert("RGB"),
                            self.transform(image.convert("L").convert("RGB")), rgb.thumbnail((9, 9)), rgb))  # fmt: skip
            else:
                out.append((about, image, rgb, len(rgb.tobytes())))
        return {"x": out}


@pytest.mark.parametrize("workers", [0, 1])
def test_functions_that_do_other_things(tmp_path: Path, workers: int, capfd: Any) -> None:
    """They have a state, read images, change them, keep them: all results equal torch's."""
    for where in (in_memory, in_files):
        base, made = where(tmp_path), []
        for kind in (tud.DataLoader, DataLoader):
            data = base.with_transform(Sees(EVAL))
            loader = kind(data, 5, num_workers=workers, collate_fn=lambda b: [e["x"] for e in b])
            made.append([list(loader), list(loader)])
        assert type(loader._stoker_path).__name__ == "EngineWay", loader.explain()
        given, answered = loader._stoker_path.plan._tally.sums()
        assert given == 2 * IMAGES and 0 < answered < given
        assert "which are not JPEGs or not given to Compose" in loader.explain()
        loader._stoker_path.plan.close()
        assert close(made[1], made[0])


def prints(batch: Any) -> Any:
    print("seen", len(batch["image"]), flush=True)
    return {"x": [EVAL(image.convert("RGB")) for image in batch["image"]], "n": [1] * len(batch["image"])}


def test_functions_are_called_as_often_as_by_torch(capfd: Any) -> None:
    data = in_memory(Path()).with_transform(prints)
    for workers in (0, 1):
        _, expected, got = both(data, num_workers=workers)
        assert close(got, expected)
        lines = capfd.readouterr().out.splitlines()
        assert lines == ["seen 5", "seen 5", "seen 2"] * 2


def turned(orientation: int) -> bytes:
    exif = PIL.Image.Exif()
    exif[0x010F], exif[0x0112], exif[0x9286] = "Stoker", orientation, b"x" * 40
    return jpeg(orientation, exif=exif)


def test_images_are_turned_by_the_engine() -> None:
    """Also if the functions run without images."""
    data = table([{"bytes": turned(i), "path": None} for i in range(1, 9)])
    data = data.with_transform(as_transformers_does(EVAL))
    loader, expected, got = both(data, num_workers=1, collate_fn=collate_fn)
    assert close(got, expected)
    assert "without images" in loader.explain() and loader._stoker_path.plan._odd == 0


@pytest.mark.filterwarnings("ignore")
def test_damaged_exif_is_read_as_pillow_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow reads the images that the engine might read differently: here most. All results equal torch's."""
    from stoker.torch._recognise import _examples, _whole

    monkeypatch.setattr(_examples, "_TRIED", 1)
    draw = random.Random(4)
    whole, images = turned(6), [jpeg(1)]
    at = whole.index(b"Exif") + 6
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(draw.choice([1, 1, 2, 5])):
            data[at + draw.randrange(60)] = draw.choice([0, 1, 3, 6, 8, 255, draw.randrange(256)])
        images.append(bytes(data))
    images += [whole[: at - 10] + b"\xff\xe1\x00\x04ab" + whole[at - 10 :], whole.replace(b"Exif\0\0", b"Exif\0\1")]
    xmp = b"http://ns.adobe.com/xap/1.0/\0<tiff:Orientation>6</tiff:Orientation>"
    images.append(jpeg(2)[:2] + b"\xff\xe1" + (len(xmp) + 2).to_bytes(2, "big") + xmp + jpeg(2)[2:])
    for b in images.copy():
        try:
            PIL.ImageOps.exif_transpose(PIL.Image.open(io.BytesIO(b)))
        except Exception:  # which it is with torch too
            images.remove(b)
    data = table([{"bytes": b, "path": None} for b in images]).with_transform(as_transformers_does(EVAL))
    loader, expected, got = both(data, num_workers=1, collate_fn=collate_fn)
    assert close(got, expected)
    known = [_whole.Heads(1).plain(0, b) for b in images]
    assert 5 < sum(known) < len(images) and not known[-1]
    assert loader._stoker_path.plan._odd > 0
    with monkeypatch.context() as patch:
        patch.setattr(PIL.Image.Exif, "tobytes", lambda *_: 1 / 0)
        assert not _whole.Heads(1).plain(0, whole) and _whole.Heads(1).plain(0, jpeg(1))


def test_few_images_that_only_pillow_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few are made in the loader's process. If there are more, workers make them, an epoch later."""
    from stoker.torch._recognise import _examples

    monkeypatch.setattr(_examples, "_TRIED", 2)
    png = io.BytesIO()
    picture(3, 50, 60).save(png, "PNG")
    images = rows()
    images[5], images[8] = png.getvalue(), jpeg(8, "CMYK")
    data = table([{"bytes": b, "path": None} for b in images])
    for transform in (EVAL, TRAIN):
        own = data.with_transform(as_transformers_does(transform))
        loader, expected, got = both(own, num_workers=1, batch_size=4, collate_fn=collate_fn)
        assert transform is TRAIN or close(got, expected)
        assert loader._stoker_path.plan._odd == 2 and loader._stoker_path.plan._made_whole == 3
        before = torch.get_rng_state()
        list(loader._stoker_path.plan.iterate(loader, 5, iter([[5]])))
        assert torch.equal(before, torch.get_rng_state())
    assert "without images" in loader.explain()
    monkeypatch.setattr(_examples, "_ODD", 1)
    assert "without images" not in loader.explain()
    for i, b in enumerate(images):
        (tmp_path / f"{i}.jpg").write_bytes(b)
    files = table([str(tmp_path / f"{i}.jpg") for i in range(IMAGES)]).with_transform(as_transformers_does(EVAL))
    loader, expected, got = both(files, num_workers=1, collate_fn=collate_fn)
    assert close(got, expected)
    (tmp_path / "2.jpg").write_bytes(png.getvalue())  # its head is looked at again
    assert close(list(loader), list(tud.DataLoader(files, 5, collate_fn=collate_fn)))


SEEN: list[Any] = []
COUNTS = {"calls": 0}


def _seen(batch: Any) -> Any:
    SEEN.append(len(batch["image"]))
    return {"x": [EVAL(i.convert("RGB")) + len(SEEN) for i in batch["image"]]}


def _counted(batch: Any) -> Any:
    COUNTS["calls"] += 1
    return {"x": [EVAL(i.convert("RGB")) for i in batch["image"]]}


def _asks(batch: Any) -> Any:
    return {"x": [EVAL(i.convert("RGB")) + (2 if isinstance(i, PIL.Image.Image) else 1) for i in batch["image"]]}


def _tries(batch: Any) -> Any:
    out = []
    for image in batch["image"]:
        try:
            out.append(EVAL(image.convert("RGB")) + image.width)
        except BaseException:
            out.append(torch.zeros(3, 40, 40))
    return {"x": out}


def _named(batch: Any) -> Any:
    return {"x": [EVAL(i.convert("RGB")) + len(str(type(i))) for i in batch["image"]]}


def _gray(batch: Any) -> Any:
    return {"x": [EVAL(i.convert("L").convert("RGB")) for i in batch["image"]]}


def _plain(batch: Any) -> Any:
    return {"x": [EVAL(i.convert("RGB")) for i in batch["image"]], "i": batch["image"]}


def _stacked(examples: Any) -> Any:
    return torch.stack([e["x"] for e in examples])


def test_functions_that_need_their_images() -> None:
    """They have them, in worker processes."""
    collates: list[Any] = [
        lambda b: torch.stack([e["x"] for e in b[::-1]]),
        lambda b: torch.stack([e["x"] for e in b], 1),
        lambda b: torch.stack([e["x"] for e in b] * 2),
        lambda b: (torch.stack([e["x"] for e in b]).zero_(), torch.stack([e["x"] for e in b])),
        lambda b: torch.stack([e["x"] + 1 for e in b]),
        lambda b: {"t": torch.stack([e["x"] for e in b]), "x": [e["x"] for e in b]},
        lambda b: {"t": torch.stack([e["x"] for e in b]), "x": [e["x"] is None or e["x"].shape[0] for e in b]},
        lambda b: torch.cat([e["x"][None] for e in b]),
    ]
    cases = [(f, _stacked) for f in (_seen, _counted, _asks, _tries, _named, _gray)]
    for function, collate in cases + [(_plain, c) for c in collates]:
        SEEN.clear()
        loader, expected, got = both(in_memory(Path()).with_transform(function), num_workers=1, collate_fn=collate)
        assert close(got, expected), function
        assert "without images" not in loader.explain(), (function, collate)
        assert SEEN == [], "it has left something in the loader's process"


def test_functions_that_need_none_of_their_images() -> None:
    collates: list[Any] = [
        _stacked,
        lambda b: {"t": torch.stack([e["x"] for e in b], dim=0).mul_(2).flatten(1), "n": [len(e) for e in b]},
        lambda b: (torch.stack(tuple(e["x"] for e in b)), "some", [None, (1.5, b"x")]),
    ]
    for collate in collates:
        loader, expected, got = both(in_memory(Path()).with_transform(_plain), num_workers=1, collate_fn=collate)
        assert "without images" in loader.explain()
        halved = [b["t"].div_(2) for b in (*got, *expected) if isinstance(b, dict)]
        assert close(got, expected) and len(halved) in (0, 6)
        assert loader._stoker_path.plan._odd == 0


def test_functions_that_need_images_sometimes() -> None:
    """Batches that are not known in advance are made again, even if the engine's was written into."""

    def collate(b: Any) -> Any:
        batch = torch.stack([e["x"] for e in b])
        batch += 1
        return (batch, b[0]["i"].size, b[0]["i"]) if len(b) == 2 else (batch, (0, 0), 0)

    loader, expected, got = both(in_memory(Path()).with_transform(_plain), num_workers=1, collate_fn=collate)
    assert close(got, expected) and loader._stoker_path.plan._odd == 1


def test_the_end_of_an_epoch_keeps_no_batch() -> None:
    """It also does not keep the frames of callers that have asked for one more."""
    loader = DataLoader(
        in_memory(Path()).with_transform(as_transformers_does(EVAL)), 5, num_workers=1, collate_fn=collate_fn
    )

    def last() -> Any:
        batches = iter(loader)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return weakref.ref(batch["pixel_values"])

    gc.collect()
    gc.disable()
    try:
        assert last()() is None
    finally:
        gc.enable()


def test_what_is_kept_is_decoded(tmp_path: Path) -> None:
    kept: list[Any] = []

    def keeps(batch: Any) -> Any:
        kept.extend(batch["image"])
        return {"x": [EVAL(i.convert("RGB")) for i in batch["image"]]}

    _, _, _ = both(in_memory(tmp_path).with_transform(keeps))
    assert len(kept) == 2 * IMAGES
    for ours, theirs in zip(kept[IMAGES:], kept[:IMAGES], strict=True):
        assert ours._im is not None and type(ours._im) is type(theirs._im) and close(ours, theirs)
    assert PIL.Image.Image.convert.__module__ == "PIL.Image" and "__call__" in vars(v1.Compose)
    assert PIL.Image.Image.copy.__module__ == "PIL.Image"


@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_is_decoded_in_vain(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if examples have their images until they are collated."""
    from stoker.torch._recognise import _pending

    def settle(self: Any, image: Any) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(_pending.Pending, "settle", settle)
    for function in (as_transformers_does(EVAL), with_sizes(EVAL)):
        data = in_memory(Path()).with_transform(function)
        assert len(list(DataLoader(data, 4, num_workers=workers, collate_fn=collate_fn))) == 3


def test_random_transforms_have_torchs_distribution() -> None:
    stats = pytest.importorskip("scipy.stats")
    data = in_memory(Path()).select([9]).with_transform(as_transformers_does(TRAIN))
    sampler = tud.RandomSampler(data, replacement=True, num_samples=1200)
    torch.manual_seed(5)
    loader, (expected,), (got,) = both(data, batch_size=1200, sampler=sampler, num_workers=1, collate_fn=collate_fn)
    assert loader._stoker_path.plan._tally.sums() == (1200, 1200)
    for statistic in (
        lambda x: x.mean((1, 2, 3)),
        lambda x: x.std((1, 2, 3)),
        lambda x: x[:, 0, :8, :8].mean((1, 2)) - x[:, 2, -8:, -8:].mean((1, 2)),
    ):
        a, b = (statistic(x["pixel_values"].double()).numpy() for x in (expected, got))
        assert stats.ks_2samp(a, b).pvalue > 0.01


def test_random_transforms_are_answered_once_for_each_image() -> None:
    tiny = v1.Compose([v1.RandomResizedCrop(16, (0.05, 0.2)), v1.ToTensor()])

    def views(batch: Any) -> Any:
        return {"x": [torch.stack([tiny(i.convert("RGB")), tiny(i.convert("RGB"))]) for i in batch["image"]]}

    (got,) = list(DataLoader(in_memory(Path()).with_transform(views), IMAGES))
    assert all(not torch.equal(pair[0], pair[1]) for pair in got["x"])


def test_images_that_only_pillow_takes(tmp_path: Path) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    upright = PIL.Image.Exif()
    upright[0x0112] = 1
    png = io.BytesIO()
    picture(3, 50, 60).save(png, "PNG")
    images = [jpeg(1), jpeg(2, exif=exif), jpeg(3, "CMYK"), png.getvalue(), jpeg(4, exif=upright), jpeg(5) + b"junk"]
    data = table([{"bytes": b, "path": None} for b in images]).with_transform(
        lambda b: {"x": [EVAL(i.convert("RGB")) for i in b["image"]], "about": [(i.mode, i.size) for i in b["image"]]}
    )
    for workers in (0, 1):
        _, expected, got = both(data, num_workers=workers)
        assert close(got, expected)
    for bad, kind in ((b"no image", PIL.UnidentifiedImageError), (jpeg(6)[:-300], OSError)):
        worse = table([{"bytes": b, "path": None} for b in [*images, bad]])
        worse = worse.with_transform(as_transformers_does(EVAL))
        for workers in (0, 1):
            with pytest.raises(kind):
                list(DataLoader(worse, 7, num_workers=workers))


def test_a_wrong_guess_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """If functions do not call the transform that they name, Python builds the next epoch."""
    from stoker.torch._recognise import _tally

    monkeypatch.setattr(_tally, "_ENOUGH", 10)

    def never(batch: Any) -> Any:
        return {"x": [EVAL(i) if i.width == 1 else torch.tensor(i.size) for i in batch["image"]]}

    loader, expected, got = both(in_memory(Path()).with_transform(never))
    assert close(got, expected)
    assert close(list(loader), expected)
    assert "gave 12 of 12 images to something else than Compose" in loader.explain()


def test_transforms_that_change_are_seen() -> None:
    grows = v1.Compose([v1.Resize((20, 20)), v1.ToTensor()])

    def function(batch: Any) -> Any:
        if grows.transforms[0].size == (20, 20) and 3 in batch["label"]:
            grows.transforms[0].size = (30, 30)
        return {"x": [grows(i.convert("RGB")) for i in batch["image"]]}

    loader = DataLoader(in_memory(Path()).with_transform(function), 2)
    assert [tuple(b["x"].shape[2:]) for b in loader] == [(20, 20)] + [(30, 30)] * 5
    assert [tuple(b["x"].shape[2:]) for b in loader] == [(30, 30)] * 6
    grows.transforms.insert(1, v1.RandomRotation((9, 9), v1.InterpolationMode.BICUBIC))
    assert "split before RandomRotation" in loader.explain()


def said(data: Any, **arguments: Any) -> str:
    answer = plan(DataLoader(data, 4, **arguments))
    if not isinstance(answer, str):
        answer.close()
        pytest.fail(str(answer.explain()))
    return answer


@dataclasses.dataclass
class Options:
    column: str = "image"
    noise: float = 0.5


def helper(image: Any) -> Any:
    return TRAIN(image.convert("RGB"))


def seeding(batch: Any) -> Any:
    torch.manual_seed(1)
    return {"x": [TRAIN(i.convert("RGB")) for i in batch["image"]]}


def seeded(batch: Any) -> Any:
    state = torch.get_rng_state()
    out = [TRAIN(i.convert("RGB")) for i in batch["image"]]
    torch.set_rng_state(state)
    return {"x": out}


def imports(batch: Any) -> Any:
    import random as r

    r.seed(1)
    return {"x": [TRAIN(i.convert("RGB")) for i in batch["image"]]}


def looks_up(batch: Any) -> Any:
    getattr(torch, "manual" + "_seed")(3)
    return {"x": [TRAIN(i.convert("RGB")) for i in batch["image"]]}


def renamed(batch: Any) -> Any:
    t = torch
    t.random.manual_seed(1)
    return {"x": [TRAIN(i.convert("RGB")) for i in batch["image"]]}


def through_globals(batch: Any) -> Any:
    helper.__globals__["torch"].seed()
    return {"x": [TRAIN(i.convert("RGB")) for i in batch["image"]]}


def calls(batch: Any) -> Any:
    random.seed(1)
    return {"x": [helper(i) for i in batch["image"]]}


OPTIONS = Options()


def fine(batch: Any, scale: float = 2.0) -> Any:
    out = []
    for i, image in enumerate(batch[OPTIONS.column]):
        out.append(helper(image) * OPTIONS.noise if i else TRAIN(image.convert("RGB")) * scale)
    return {"x": torch.stack(out), "n": [len(out)] * len(out), "t": torch.tensor(batch["label"], dtype=torch.long)}


def test_functions_that_may_set_random_numbers() -> None:
    """With random transforms, they are left to Python, because they may make random numbers repeat."""
    data = in_memory(Path())
    for function in (seeding, seeded, imports, looks_up, renamed, through_globals, calls):
        assert "may set them" in said(data.with_transform(function)), function.__name__
    collate = lambda b: (torch.manual_seed(1), b)[1]  # noqa: E731
    assert "may set them" in said(data.with_transform(fine), collate_fn=collate)

    class Method:
        def function(self, batch: Any) -> Any:
            return {"x": [TRAIN(i.convert("RGB")) for i in batch["image"]]}

    assert "may set them" in said(data.with_transform(Method().function))
    for function in (fine, as_transformers_does(TRAIN)):
        assert _functions.draws_alone(function, lambda v: v is TRAIN)
        answer = plan(DataLoader(data.with_transform(function), 4, collate_fn=collate_fn))
        assert not isinstance(answer, str), answer
        answer.close()


def test_what_is_not_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = in_memory(tmp_path)
    good = as_transformers_does(EVAL)
    assert "name no transform" in said(data)
    assert "name no transform" in said(data.with_transform(lambda b: {"x": b["label"]}))
    odd = v1.Compose([v1.RandomRotation((9, 9), v1.InterpolationMode.BICUBIC), v1.Resize((9, 9))])
    assert "RandomRotation with interpolation bicubic" in said(data.with_transform(as_transformers_does(odd)))
    several = lambda b: {"x": [EVAL(i) if i.width else CROP(i) for i in b["image"]]}  # noqa: E731
    assert "2 transforms" in said(data.with_transform(several))
    assert "format 'torch'" in said(data.with_format("torch"))
    pair = {"bytes": jpeg(1), "path": None}
    features = hf.Features({"image": hf.Image(), "mask": hf.Image()})
    pairs = hf.Dataset.from_dict({"image": [pair], "mask": [pair]}, features)
    assert "both have images" in said(pairs.with_transform(good))
    assert "worker_init_fn" in said(data.with_transform(good), num_workers=1, worker_init_fn=print)
    assert "no batch sampler" in str(plan(DataLoader(data.with_transform(good), batch_size=None)))
    assert "empty values" in said(table([None, {"bytes": jpeg(1), "path": None}]).with_transform(good))
    mixed = table([str(tmp_path / "a.jpg"), {"bytes": jpeg(1), "path": None}])
    assert "some images are files" in said(mixed.with_transform(good))
    assert "not files of this machine" in said(table(["https://example.org/a.jpg"]).with_transform(good))
    for where, name in ((PIL.Image.Image, "convert"), (hf.Image, "decode_example"), (hf.Dataset, "__getitems__")):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, lambda self, *a, **k: 5)
            assert "replaced" in said(data.with_transform(good)), name
    monkeypatch.setattr(_arrow_images, "_MAX_BYTES", 1000)
    assert "in memory" in said(data.with_transform(good))


def test_workers_that_are_not_forked(tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    data = mapped(tmp_path).with_transform(with_sizes(copy.deepcopy(EVAL)))
    arguments = {"num_workers": 1, "collate_fn": collate_fn}
    expected = list(tud.DataLoader(data, 5, collate_fn=collate_fn))
    loader = DataLoader(data, 5, multiprocessing_context="spawn", **arguments)
    assert close(list(loader), expected)
    assert loader._stoker_path.plan._tally.sums() == (IMAGES, IMAGES)
    loader._stoker_path.plan.close()


def test_transformers_seeds_its_workers() -> None:
    trainer = pytest.importorskip("transformers.trainer_utils")
    import functools

    seed = functools.partial(trainer.seed_worker, num_workers=1, rank=0)
    data = in_memory(Path()).with_transform(as_transformers_does(EVAL))
    _, expected, got = both(data, num_workers=1, worker_init_fn=seed, collate_fn=collate_fn)
    assert close(got, expected)
