"""Image operations on the device, compared with torchvision's, and the kernel, compared with torch's."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_device import Fake

import stoker
from stoker import _fused
from stoker import transforms as T
from stoker._fused import Draw, OnDevice

torch = pytest.importorskip("torch")
Make = Callable[..., stoker.Loader]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROP = {"image": [T.RandomResizedCrop(32)]}

# Shapes of images, element types, and operations, also with non-contiguous images, one channel, or one row.
CASES: list[tuple[str, tuple[int, ...], str, dict[str, Any], Draw]] = [
    ("plain", (4, 3, 8, 10), "uint8", {}, Draw(None, 1.0)),
    ("normalised", (4, 3, 8, 10), "uint8", {"mean": MEAN, "std": STD}, Draw(None, 1.0)),
    ("all", (5, 3, 9, 7), "uint8", {"mean": MEAN, "std": STD}, Draw(np.array([1, 0, 0, 1, 1], bool), 0.3)),
    ("channels", (5, 3, 9, 7), "uint8", {"mean": MEAN, "std": STD, "layout": "channels_last"},
     Draw(np.array([0, 1, 0, 1, 0], bool), 0.75)),
    ("gray", (3, 1, 6, 6), "uint8", {"mean": 0.5, "std": 0.25, "layout": "channels_last"}, Draw(None, 0.5)),
    ("four", (2, 4, 3, 1), "uint8", {"mean": 0.5}, Draw(np.ones(2, bool), 1.0)),
    ("wide", (2, 3, 4, 5), "uint16", {"mean": MEAN, "std": STD}, Draw(np.array([1, 0], bool), 0.4)),
    ("floats", (2, 3, 4, 5), "float32", {"std": 2.0}, Draw(np.array([0, 1], bool), 0.4)),
    ("unscaled", (2, 3, 4, 5), "uint8", {"scale": False}, Draw(None, 1.0)),
    ("half", (2, 3, 40, 50), "uint8", {"dtype": "float16", "mean": MEAN, "std": STD}, Draw(None, 1.0)),
    ("bfloat", (2, 3, 40, 50), "uint8", {"dtype": torch.bfloat16, "mean": MEAN}, Draw(np.ones(2, bool), 0.9)),
    ("one", (1, 3, 4, 5), "uint8", {"mean": MEAN}, Draw(np.ones(1, bool), 1.0)),
    ("none", (0, 3, 4, 5), "uint8", {"mean": MEAN}, Draw(np.ones(0, bool), 1.0)),
]  # fmt: skip


def pictures(shape: tuple[int, ...], dtype: str, memory: str) -> Any:
    """Return images with the axes channel, height and width, in one of several memory layouts."""
    rng = np.random.default_rng(3)
    most = 1 << 8 * np.dtype(dtype).itemsize
    values = rng.random(shape, np.float32) if dtype == "float32" else rng.integers(0, most, shape)
    x = torch.from_numpy(values.astype(dtype))
    if memory == "NHWC":
        return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    if memory == "apart":
        big = torch.zeros((shape[0], shape[1], shape[2] + 2, shape[3] + 3), dtype=x.dtype)
        big[:, :, 1:-1, 2:-1] = x
        return big[:, :, 1:-1, 2:-1]
    return x


def reference(x: Any, of: OnDevice, draw: Draw) -> Any:
    """The same in float64, one step after the other."""
    most = {"torch.uint8": 255, "torch.uint16": 65535}.get(str(x.dtype), 1) if of.scale else 1
    y = x.double() / most
    if draw.flips is not None:
        y = torch.stack([r.flip(2) if f else r for r, f in zip(y, draw.flips, strict=True)]) if len(y) else y
    y = (y - torch.tensor(of.mean)[:, None, None].double()) / torch.tensor(of.std)[:, None, None].double()
    return draw.share * y + (1 - draw.share) * y.roll(1, 0)


@pytest.mark.parametrize("memory", ["NCHW", "NHWC", "apart"])
@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_operations(case: Any, memory: str) -> None:
    _, shape, dtype, options, draw = case
    x, of = pictures(shape, dtype, memory), OnDevice(**options)
    got, want = of.apply(x, draw), reference(x, of, draw)
    assert got.shape == want.shape and str(got.dtype) == f"torch.{of.dtype}"
    memory_format = torch.channels_last if of.layout == "channels_last" else torch.contiguous_format
    assert got.is_contiguous(memory_format=memory_format)
    close = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}[of.dtype]
    assert torch.allclose(got.double(), want, rtol=0, atol=close)


def test_kernel(tmp_path: Path) -> None:
    """Triton's interpreter runs the kernel on the CPU and gives the same numbers as torch's operations."""
    pytest.importorskip("triton")
    script = tmp_path / "kernel.py"
    script.write_text(KERNEL)
    path = os.pathsep.join([str(Path(stoker.__file__).parent.parent), str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == f"{3 * (len(CASES) - 1)} equal"


KERNEL = """
import torch
from test_on_device import CASES, pictures
from stoker._fused import OnDevice, _affine, _most, by_torch, launch
from stoker import _triton

equal = 0
for name, shape, dtype, options, draw in CASES:
    for memory in ("NCHW", "NHWC", "apart"):
        x, of = pictures(shape, dtype, memory), OnDevice(**options)
        if not x.numel():
            continue
        a, b = (of.apply(x, draw) for _ in range(2))
        b.fill_(-7)
        factors, terms = _affine(of, shape[1], _most(torch, x.dtype) if of.scale else 1.0, x.device)
        flips = None if draw.flips is None else torch.from_numpy(draw.flips)
        launch(_triton.images, x, b, factors, terms, flips, draw.share)
        limit = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}[of.dtype]
        far = float((a.float() - b.float()).abs().max())
        assert far <= limit, (name, memory, far)
        equal += 1
print(equal, "equal")
"""


@pytest.mark.parametrize("mode", list(itertools.product((False, True), repeat=3)))
@pytest.mark.parametrize(("source", "out"), [("*u8", "*bf16"), ("*i16", "*fp32")])
def test_kernel_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, out: str, mode: tuple[bool, ...]
) -> None:
    """For a real device, which need not exist. The interpreter accepts code that the compiler refuses."""
    triton = pytest.importorskip("triton")
    compiler = pytest.importorskip("triton.compiler")
    backends = pytest.importorskip("triton.backends.compiler")
    from stoker import _triton

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel = _triton.images
    fixed: dict[str, int | bool] = dict(zip(("CHANNELS_LAST", "FLIP", "MIX"), mode, strict=True))
    fixed |= {"UNSIGNED16": source == "*i16", "BLOCK": 1024}
    signature = dict.fromkeys(kernel.arg_names, "i32") | dict.fromkeys(fixed, "constexpr")
    signature |= {"x": source, "out": out, "factors": "*fp32", "terms": "*fp32", "flips": "*u8", "share": "fp32"}
    of = compiler.ASTSource(fn=kernel, signature=signature, constexprs=fixed)
    made = triton.compile(of, target=backends.GPUTarget("cuda", 90, 32), options=_fused.OPTIONS)
    assert ".entry images" in made.asm["ptx"]


def test_kernel_that_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(*_: Any) -> None:
        raise RuntimeError("Failed to find C compiler.\nSet CC.")

    monkeypatch.setattr(_fused, "_kernel", object())
    monkeypatch.setattr(_fused, "launch", launch)
    with pytest.warns(RuntimeWarning, match=r"cannot compile it here \(RuntimeError: Set CC.\)"):
        assert not _fused._by_kernel(1)
    assert not _fused._by_kernel(1)  # and says so once


def test_flips_depend_on_the_record_alone() -> None:
    of = OnDevice(flip=0.5)
    records = np.arange(10_000)
    flips = of.draw(1, 0, 0, records).flips
    assert flips is not None and 4_700 < flips.sum() < 5_300
    other = of.draw(1, 0, 7, records[::-1]).flips
    assert other is not None and (other[::-1] == flips).all()
    assert (of.draw(1, 1, 0, records).flips != flips).mean() > 0.4
    assert (of.draw(2, 0, 0, records).flips != flips).mean() > 0.4
    # Neighbours are no more alike than other records.
    assert 0.45 < (flips[1:] == flips[:-1]).mean() < 0.55


def test_shares_are_of_the_distribution() -> None:
    stats = pytest.importorskip("scipy.stats")
    of = OnDevice(mixup=0.2)
    shares = [of.draw(1, 0, step, np.array([step, 3])).share for step in range(400)]
    assert stats.kstest(shares, stats.beta(0.2, 0.2).cdf).pvalue > 0.01
    assert of.draw(1, 0, 5, np.array([5])).share == 1.0  # with whom?


def test_loader(make: Make, photos: Path, fake_device: Fake) -> None:
    """Batches on the device equal the engine's."""
    options: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 3}
    tail = [T.ToDtype("float32", scale=True), T.Normalize(MEAN, STD)]
    last = stoker.Field("image", [*CROP["image"], *tail], layout="channels_last")
    engine = make(photos, output="torch", transforms={"image": last}, **options)
    of = stoker.OnDevice(mean=MEAN, std=STD, layout="channels_last")
    loader = make(photos, device=of, transforms=CROP, limits=stoker.Limits(prefetch=3), **options)
    fake_device.watch(lambda: loader._epochs.connection)
    for want, got in zip(engine, loader, strict=True):
        assert got.image.shape == want.image.shape and got.image.stride() == want.image.stride()
        assert torch.allclose(got.image, want.image, rtol=0, atol=2e-6)
        assert torch.equal(got.label, want.label) and torch.equal(got.index, want.index)
        assert {id(v) for n, v in got.items() if n != "index"} <= fake_device.owned


def test_mixup_and_flips_of_a_loader(make: Make, photos: Path) -> None:
    """The same on the CPU, whatever the batches; labels are soft, and as MixUp's."""
    options: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 3, "transforms": CROP}
    plain = [b.copy() for b in make(photos, device="cpu", **options)]
    of = stoker.OnDevice(flip=0.5, mixup=0.4, device="cpu")
    runs = [[b.copy() for b in make(photos, device=of, **options)] for _ in range(2)]
    for a, b, bare in zip(*runs, plain, strict=True):
        assert torch.equal(a.image, b.image) and torch.equal(a.label_soft, b.label_soft)
        draw = of.draw(3, a.epoch, a.step, a.index.numpy())
        x = bare.image.float() / 255
        x = torch.stack([r.flip(2) if f else r for r, f in zip(x, draw.flips, strict=True)])
        assert torch.allclose(a.image, draw.share * x + (1 - draw.share) * x.roll(1, 0), rtol=0, atol=2e-6)
        hot = torch.nn.functional.one_hot(bare.label.long(), 4).float()
        assert torch.allclose(a.label_soft, draw.share * hot + (1 - draw.share) * hot.roll(1, 0))
        images, labels = a
        assert images is a.image and labels is a.label_soft
        assert torch.equal(a.label, bare.label)


def test_flips_stay_with_other_batches(make: Make, photos: Path) -> None:
    seen = {}
    small, of = {"image": [T.CenterCrop(24)]}, stoker.OnDevice(flip=0.5, device="cpu")
    for size in (16, 50):
        loader = make(photos, size, shuffle=True, seed=9, transforms=small, device=of)
        rows = {int(i): x.clone() for b in loader for i, x in zip(b.index, b.image, strict=True)}
        seen[size] = rows
    assert seen[16].keys() == seen[50].keys()
    assert all(torch.equal(seen[16][i], seen[50][i]) for i in seen[16])


def double(batch: Any) -> Any:
    return {"twice": batch.image * 2, "y": batch.label}


def test_behind_functions(make: Make, photos: Path, fake_device: Fake) -> None:
    """Arrays that user functions made are not in the ring, and are staged."""
    of = stoker.OnDevice(images="twice", mixup=0.5, labels="y", num_classes=4)
    loader = make(photos, 16, transforms=CROP, batch_map=double, workers=1, device=of)
    plain = make(photos, 16, transforms=CROP, batch_map=double, workers=1, output="torch")
    for got, want in zip(loader, plain, strict=True):
        share = of.draw(0, got.epoch, got.step, got.index.numpy()).share
        x = want.twice.permute(0, 3, 1, 2).float() / 255
        assert torch.allclose(got.twice, share * x + (1 - share) * x.roll(1, 0), rtol=0, atol=2e-6)
        assert got.y_soft.sum(1).allclose(torch.ones(len(got)))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": 3.5}, "device=3.5"),
        ({"device": OnDevice(device="cpu", images="picture")}, "the batch has image, label"),
        ({"device": OnDevice(device="cpu", mixup=1, labels="x")}, "no label 'x'"),
        ({"device": OnDevice(device="cpu"), "batch_map": double}, "name images="),
    ],
)
def test_loaders_that_are_refused(make: Make, photos: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(stoker.ConfigError, match=says):
        make(photos, 8, **{"transforms": CROP, **options})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"std": 0}, "must not be 0"),
        ({"std": (1, 0)}, "must not be 0"),
        ({"mean": "x"}, "mean='x'"),
        ({"mean": (1, 2), "std": (1, 2, 3)}, "mean has 2 numbers and std 3"),
        ({"flip": 1.5}, "flip=1.5"),
        ({"mixup": -1}, "mixup=-1"),
        ({"num_classes": 1}, "num_classes=1"),
        ({"layout": "NHWC"}, "layout='NHWC'"),
    ],
)
def test_nonsense(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(stoker.ConfigError, match=says):
        OnDevice(**arguments)


def test_says_what_it_is() -> None:
    of = OnDevice("bfloat16", mean=MEAN, std=STD, flip=0.5, layout="channels_last")
    assert repr(eval(repr(of), {"OnDevice": OnDevice})) == repr(of)
    with pytest.raises(stoker.ConfigError, match="mean has 3 numbers, and images have 1 channels"):
        OnDevice(mean=MEAN).apply(torch.zeros(2, 1, 4, 4), Draw(None, 1.0))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_kernel_on_a_real_device(case: Any) -> None:
    _, shape, dtype, options, draw = case
    x, of = pictures(shape, dtype, "NHWC"), OnDevice(**options)
    got = of.apply(x.cuda(), draw).cpu().float()
    close = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}[of.dtype]
    assert torch.allclose(got, of.apply(x, draw).float(), rtol=0, atol=close)
