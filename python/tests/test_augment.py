"""The augmentations: arguments here, pixels against torchvision through the whole engine."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import transforms as T

ROOT = Path(__file__).parent.parent.parent
Make = Callable[..., stoker.Loader]


# --- arguments -------------------------------------------------------------


def test_signatures_are_torchvisions() -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2")
    compared = 0
    for name in T.__all__:
        theirs = getattr(v2, name, None)
        if name in ("Transform", "ToDtype") or theirs is None:
            continue
        ours = inspect.signature(getattr(T, name).__init__).parameters
        for p in inspect.signature(theirs.__init__).parameters.values():
            if p.name in ("self", "labels_getter"):
                continue
            assert p.name in ours, f"{name} lacks {p.name}"
            default = getattr(p.default, "value", p.default)
            assert ours[p.name].default == default or p.default is p.empty, f"{name}: {p.name}"
        compared += 1
    assert compared > 25


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.ColorJitter(brightness=-1), "brightness must be a number from 0 .*, not -1"),
        (lambda: T.ColorJitter(hue=0.6), "0 to 0.5"),
        (lambda: T.ColorJitter(hue=(0.3, 0.1)), "smaller one first"),
        (lambda: T.ColorJitter(saturated=1), "saturat"),
        (lambda: T.RandomPosterize(9), "from 0 to 8"),
        (lambda: T.RandomSolarize(70000), "threshold"),
        (lambda: T.RandomInvert(p=2), "from 0 to 1"),
        (lambda: T.GaussianBlur(4), "odd"),
        (lambda: T.GaussianBlur(3, sigma=(2, 1)), "sigma"),
        (lambda: T.RandomRotation(-3), "degrees must be a number from 0"),
        (lambda: T.RandomRotation(3, interpolation="bicubic"), 'must be "nearest" or "bilinear", not'),
        (lambda: T.RandomAffine(3, translate=(0.1, 2)), "from 0 to 1"),
        (lambda: T.RandomAffine(3, scale=(0, 1)), "above 1e-06"),
        (lambda: T.RandomAffine(3, shear=(1, 2, 3)), "min x, max x, min y, max y"),
        (lambda: T.RandomErasing(scale=(0.1, 2)), "scale"),
        (lambda: T.RandomErasing(value="noise"), "random"),
        (lambda: T.AutoAugment("mnist"), '"imagenet", "cifar10" or "svhn"'),
        (lambda: T.RandAugment(magnitude=-1), "magnitude"),
        (lambda: T.RandomApply([]), "one or more transforms"),
        (lambda: T.RandomApply([T.RandomInvert]), r"write RandomInvert\(\.\.\.\)"),
        (lambda: T.RandomChoice([T.RandomInvert()], p=[-1]), "p must be"),
        (lambda: T.RandomCrop(4, padding=1, padding_mode="mirror"), "reflect"),
        (lambda: T.MixUp(alpha=0), "alpha"),
        (lambda: T.CutMix(num_classes=0), "num_classes"),
    ],
)
def test_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(stoker.ConfigError, match=message):
        make()


def test_config_and_repr() -> None:
    t = T.RandomApply([T.ColorJitter(0.4, hue=0.1), T.GaussianBlur(3)], p=0.8)
    assert t.to_config() == {
        "op": "RandomApply",
        "p": 0.8,
        "transforms": [
            {"op": "ColorJitter", "brightness": 0.4, "contrast": None, "saturation": None, "hue": 0.1},
            {"op": "GaussianBlur", "kernel_size": 3, "sigma": [0.1, 2.0]},
        ],
    }
    assert repr(T.RandAugment(magnitude=5)) == "RandAugment(magnitude=5)"
    assert T.AutoAugment("svhn").to_config()["policy"] == "svhn"


def test_goldens_are_current() -> None:
    pytest.importorskip("torchvision")
    script = ROOT / "scripts" / "gen_aug_golden.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_soft_labels_take_the_place_of_labels() -> None:
    arrays = {n: np.zeros(2) for n in ("image", "label", "weight", "label_soft", "index")}
    batch = stoker.Batch(arrays, 0, 0, 2)
    assert len(batch) == 2 and len(list(batch)) == 3
    assert [id(a) for a in batch] == [id(arrays[n]) for n in ("image", "label_soft", "weight")]
    assert batch.label is arrays["label"]


# --- pixels ----------------------------------------------------------------

SIDE = 96


def rows(
    make: Make, pack: Path, transforms: list[Any], count: int = 24, layout: Any = None, **kwargs: Any
) -> tuple[Any, stoker.Batch]:
    """Return the unmodified images and a batch with the transforms applied."""
    crop = T.CenterCrop(SIDE)
    fields = {
        "plain": stoker.Field("image", [crop], layout=layout),
        "image": stoker.Field("image", [crop, *transforms], layout=layout),
    }
    loader = make(pack, batch_size=count, transforms=fields, seed=7, **kwargs)
    batch = next(iter(loader)).copy()
    return batch["plain"], batch


def chw(image: Any) -> Any:
    torch = pytest.importorskip("torch")
    return torch.from_numpy(image.copy()).permute(2, 0, 1)


def hwc(image: Any) -> Any:
    return image.permute(1, 2, 0).numpy()


def fixed() -> list[tuple[Any, Callable[[Any, Any], Any]]]:
    """Return transforms without randomness, and torchvision's results for them."""
    return [
        (T.ColorJitter(brightness=(1.3, 1.3)), lambda f, t: f.adjust_brightness(t, 1.3)),
        (T.ColorJitter(contrast=(0.6, 0.6)), lambda f, t: f.adjust_contrast(t, 0.6)),
        (T.ColorJitter(saturation=(1.7, 1.7)), lambda f, t: f.adjust_saturation(t, 1.7)),
        (T.ColorJitter(hue=(0.2, 0.2)), lambda f, t: f.adjust_hue(t, 0.2)),
        (T.Grayscale(3), lambda f, t: f.rgb_to_grayscale(t, 3)),
        (T.Grayscale(), lambda f, t: f.rgb_to_grayscale(t, 1)),
        (T.RandomGrayscale(p=1), lambda f, t: f.rgb_to_grayscale(t, 3)),
        (T.RandomInvert(p=1), lambda f, t: f.invert(t)),
        (T.RandomPosterize(3, p=1), lambda f, t: f.posterize(t, 3)),
        (T.RandomSolarize(130, p=1), lambda f, t: f.solarize(t, 130)),
        (T.RandomEqualize(p=1), lambda f, t: f.equalize(t)),
        (T.RandomAutocontrast(p=1), lambda f, t: f.autocontrast(t)),
        (T.RandomAdjustSharpness(2.5, p=1), lambda f, t: f.adjust_sharpness(t, 2.5)),
        (T.GaussianBlur((9, 5), sigma=1.4), lambda f, t: f.gaussian_blur(t, [9, 5], [1.4, 1.4])),
        (T.RandomRotation((90, 90)), lambda f, t: f.rotate(t, 90)),
        (T.RandomRotation((33, 33), fill=(9, 99, 200)), lambda f, t: f.rotate(t, 33, fill=[9, 99, 200])),
        (
            T.RandomRotation((-20, -20), interpolation="bilinear", center=(10, 60)),
            lambda f, t: f.rotate(t, -20, interpolation="bilinear", center=[10, 60], fill=0),
        ),
        (
            T.RandomAffine((12, 12), scale=(1.2, 1.2), shear=(7, 7, -4, -4), interpolation="bilinear", fill=50),
            lambda f, t: f.affine(t, 12, [0, 0], 1.2, [7, -4], interpolation="bilinear", fill=50),
        ),
        (T.RandomVerticalFlip(p=1), lambda f, t: f.vertical_flip(t)),
        (T.Compose([T.RandomInvert(p=1), T.RandomEqualize(p=1)]), lambda f, t: f.equalize(f.invert(t))),
        (T.RandomApply([T.RandomInvert(p=1)], p=0), lambda f, t: t),
        (
            T.RandomChoice([T.RandomInvert(p=0), T.RandomPosterize(1, p=1)], p=[0, 1]),
            lambda f, t: f.posterize(t, 1),
        ),
    ]


@pytest.mark.parametrize(("transform", "theirs"), fixed(), ids=lambda v: repr(v) if isinstance(v, T.Transform) else "")
def test_pixels(make: Make, pack: Path, transform: Any, theirs: Callable[[Any, Any], Any]) -> None:
    f = pytest.importorskip("torchvision.transforms.v2.functional")
    plain, batch = rows(make, pack, [transform], 8)
    nearest = getattr(transform, "interpolation", "") == "nearest"
    for before, after in zip(plain, batch["image"], strict=True):
        want = hwc(theirs(f, chw(before)))
        assert after.shape == want.shape
        wrong = np.abs(after.astype(int) - want) > 1
        # With nearest, a point half way between two pixels may fall to either.
        assert wrong.mean() <= (1e-3 if nearest else 0)


def test_policies_do_what_torchvision_does(make: Make, pack: Path) -> None:
    """Each image must equal torchvision's, with one of its operations and signs."""
    torch = pytest.importorskip("torch")
    v2 = pytest.importorskip("torchvision.transforms.v2")
    theirs = v2.RandAugment(num_ops=1, magnitude=21)
    space = {}
    for name, (fn, signed) in theirs._AUGMENTATION_SPACE.items():
        m = fn(31, SIDE, SIDE)
        for sign in (1, -1) if signed else (1,):
            space[name, sign] = 0.0 if m is None else sign * float(m[21])
    plain, batch = rows(make, pack, [T.RandAugment(num_ops=1, magnitude=21)], 100)
    seen = set()
    for before, after in zip(plain, batch["image"], strict=True):
        ours = torch.from_numpy(after.astype(np.int16)).permute(2, 0, 1)
        found = []
        for (name, sign), m in space.items():
            out = theirs._apply_image_or_video_transform(chw(before), name, m, theirs.interpolation, theirs._fill)
            if ((ours - out).abs() > 1).float().mean() <= 2e-3:
                found.append((name, sign))
        assert found
        seen.update(found)
    assert len(seen) > 15


def test_padded_crop_is_a_window(make: Make, pack: Path) -> None:
    for mode in ("reflect", "symmetric", "edge", "constant"):
        plain, batch = rows(make, pack, [T.RandomCrop(SIDE, padding=6, padding_mode=mode)])
        corners = set()
        for before, after in zip(plain, batch["image"], strict=True):
            padded = np.pad(before, ((6, 6), (6, 6), (0, 0)), mode=mode)  # type: ignore[call-overload]
            at = [
                (y, x)
                for y in range(13)
                for x in range(13)
                if np.array_equal(padded[y : y + SIDE, x : x + SIDE], after)
            ]
            assert at, mode
            corners.update(at)
        assert len(corners) > 10


def test_erasing(make: Make, pack: Path) -> None:
    plain, batch = rows(make, pack, [T.RandomErasing(p=1, value=(1, 2, 3))])
    for before, after in zip(plain, batch["image"], strict=True):
        ys, xs = np.nonzero((before != after).any(-1))
        box = after[ys.min() : ys.max() + 1, xs.min() : xs.max() + 1]
        assert (box == [1, 2, 3]).all()
        assert 0.015 < box.shape[0] * box.shape[1] / SIDE**2 < 0.34


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_erasing_behind_normalize(make: Make, pack: Path, layout: str, dtype: str) -> None:
    chain = [T.ToDtype(dtype, scale=True), T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))]
    erase = T.RandomErasing(p=1, scale=(0.1, 0.2), value="random")
    plain, batch = rows(make, pack, [*chain, erase], 60, layout)
    image = batch["image"].astype(np.float64)
    if layout == "NCHW":
        image, plain = image.transpose(0, 2, 3, 1), plain.transpose(0, 2, 3, 1)
    whole = (plain / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.3, 0.4]
    changed = np.abs(image - whole) > 0.01
    noise = image[changed]
    assert 0.08 < changed.mean() < 0.22
    assert abs(noise.mean()) < 0.05
    assert abs(noise.std() - 1) < 0.05


def test_mask_follows_image(make: Make, pack: Path) -> None:
    moves = [
        T.RandomAffine(20, translate=(0.1, 0.1), shear=5),
        T.RandomCrop(80, padding=4, padding_mode="reflect"),
        T.RandomHorizontalFlip(),
    ]
    fields = {
        "image": stoker.Field("image", [T.CenterCrop(SIDE), T.Grayscale(3), T.RandomPosterize(8, p=1), *moves]),
        "mask": stoker.Field(
            "image",
            [T.CenterCrop(SIDE), T.Grayscale(3), T.RandomPosterize(8, p=1), *moves],
            mask=True,
            follow="image",
        ),
    }
    batch = next(iter(make(pack, batch_size=32, transforms=fields, seed=3))).copy()
    assert batch["mask"].shape == (32, 80, 80)
    # Masks are moved with nearest interpolation too, so the gray values agree
    # up to how a colour image becomes a mask of one channel.
    diff = np.abs(batch["image"][..., 0].astype(int) - batch["mask"])
    assert np.median(diff) <= 1
    assert (diff > 3).mean() < 0.01


def test_two_views_and_local_crops(make: Make, pack: Path) -> None:
    jitter = T.RandomApply([T.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8)
    view = [T.RandomResizedCrop(64), T.RandomHorizontalFlip(), jitter, T.RandomGrayscale(0.2)]
    local = [T.RandomResizedCrop(32, scale=(0.05, 0.4)), jitter, T.GaussianBlur(3)]
    fields = {
        "one": stoker.Field("image", [*view, T.GaussianBlur(7)]),
        "two": stoker.Field("image", [*view, T.RandomSolarize(128, p=0.2)]),
        **{f"local{i}": stoker.Field("image", local) for i in range(4)},
    }
    first = next(iter(make(pack, batch_size=40, transforms=fields, seed=3, threads=1))).copy()
    again = next(iter(make(pack, batch_size=40, transforms=fields, seed=3, threads=2))).copy()
    for name, array in first.items():
        assert np.array_equal(array, again[name]), name
    assert first["one"].shape == (40, 64, 64, 3)
    assert first["local3"].shape == (40, 32, 32, 3)
    views = [first[n] for n in ("one", "two")] + [first[f"local{i}"] for i in range(4)]
    for i, a in enumerate(views):
        for b in views[:i]:
            assert a.shape != b.shape or (a != b).mean() > 0.5


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_mixup(make: Make, pack: Path, dtype: str) -> None:
    convert = [] if dtype == "uint8" else [T.ToDtype(dtype, scale=True)]
    mix = T.MixUp(alpha=0.8, images=["image"])
    plain, batch = rows(make, pack, [*convert, mix], 50, shuffle=True)
    _, images, labels = batch
    assert labels.dtype == np.float32
    assert labels.shape == (50, 4)
    assert np.allclose(labels.sum(1), 1)
    own = batch["label"]
    other = np.roll(own, 1)
    differ = np.nonzero(own != other)[0]
    lam = labels[differ, own[differ]]
    assert np.allclose(lam, lam[0])
    before = plain.astype(np.float64) / (1 if dtype == "uint8" else 255)
    want = lam[0] * before + (1 - lam[0]) * np.roll(before, 1, axis=0)
    assert np.abs(images - want).max() <= (0.51 if dtype == "uint8" else 1e-4)


def test_cutmix_or_mixup(make: Make, pack: Path) -> None:
    either = T.RandomChoice([T.MixUp(images=["image"]), T.CutMix(images=["image"])])
    fields = {
        "plain": stoker.Field("image", [T.CenterCrop(SIDE)]),
        "image": stoker.Field("image", [T.CenterCrop(SIDE), either]),
    }
    kinds = set()
    for batch in make(pack, batch_size=20, transforms=fields, seed=1, shuffle=True):
        before, after = batch["plain"], batch["image"]
        rolled = np.roll(before, 1, axis=0)
        pasted = (after == before) | (after == rolled)
        if pasted.all():
            kinds.add("cut")
            ys, xs = np.nonzero((after != before).any((0, 3)))
            if len(ys):
                share = 1 - len(np.unique(ys)) * len(np.unique(xs)) / SIDE**2
                own = batch["label"]
                rows_ = np.nonzero(own != np.roll(own, 1))[0]
                assert np.allclose(batch["label_soft"][rows_, own[rows_]], share, atol=0.02)
        else:
            kinds.add("mix")
    assert kinds == {"cut", "mix"}


def test_misplaced_transforms_are_explained(make: Make, pack: Path) -> None:
    with pytest.raises(stoker.ConfigError, match="comes last in the list"):
        make(pack, batch_size=4, transforms={"image": [T.MixUp(), T.CenterCrop(8)]})
    with pytest.raises(stoker.ConfigError, match="before those of batches"):
        make(pack, batch_size=4, transforms={"image": [T.CenterCrop(8), T.RandomChoice([T.MixUp(), T.RandomInvert()])]})
    with pytest.raises(stoker.ConfigError, match="before ToDtype"):
        make(pack, batch_size=4, transforms={"image": [T.CenterCrop(8), T.ToDtype(), T.ColorJitter(0.1)]})
