"""Annotations, masks and images share one frame, whatever the EXIF orientation says; encodings of annotation files."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

import stoker
from stoker import transforms as T
from stoker._binary import find_binary

WIDE, HIGH, CROP = 60, 80, 50
BOX = (10, 20, 40, 35)  # of the white rectangle in the picture as it is shown
POINT = (12, 25)
POLYGON = [BOX[0], BOX[1], BOX[2], BOX[1], BOX[2], BOX[3], BOX[0], BOX[3]]


def stored(shown: np.ndarray, orientation: int) -> np.ndarray:
    """Return the pixels that an orientation shows as `shown`."""
    image = Image.fromarray(shown)
    back = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # transpositions of Pillow
    if orientation > 1:
        image = image.transpose(Image.Transpose(back[orientation]))
    exif = Image.Exif()
    exif[0x112] = orientation
    image.getexif().update(exif)
    out = np.asarray(image)
    assert (np.asarray(ImageOps.exif_transpose(image)) == shown).all()
    return out


def bounds(pixels: np.ndarray) -> list[int]:
    ys, xs = np.nonzero(pixels)
    return [int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1]


def picture() -> np.ndarray:
    shown = np.full((HIGH, WIDE, 3), 40, np.uint8)
    shown[BOX[1] : BOX[3], BOX[0] : BOX[2]] = 255
    return shown


@pytest.fixture(scope="module", params=["shown", "stored"])
def photos(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Return a folder with each orientation that swaps sides, with labels for the shown or for the stored image."""
    root = tmp_path_factory.mktemp(request.param)
    for d in (
        "images",
        "labels",
        "voc/JPEGImages",
        "voc/Annotations",
        "voc/SegmentationClass",
        "voc/SegmentationObject",
    ):
        (root / d).mkdir(parents=True)
    images, annotations = [], []
    for o in (1, 5, 6, 7, 8):
        shown = picture()
        point = np.zeros((HIGH, WIDE), np.uint8)
        point[POINT[1], POINT[0]] = 1
        file = stored(shown, o)
        exif = Image.Exif()
        exif[0x112] = o
        for to in (f"images/{o}.png", f"voc/JPEGImages/{o}.png"):
            Image.fromarray(file).save(root / to, exif=exif)
        frame, mark = (shown, point) if request.param == "shown" else (file, stored(point, o))
        (y,), (x,) = np.nonzero(mark)
        h, w = frame.shape[:2]
        b = bounds(frame[..., 0] > 200)
        box = [b[0], b[1], b[2] - b[0], b[3] - b[1]]
        polygon = [b[0], b[1], b[2], b[1], b[2], b[3], b[0], b[3]]
        images.append({"id": o, "file_name": f"{o}.png", "width": w, "height": h})
        annotations.append(
            {
                "id": o,
                "image_id": o,
                "category_id": 1,
                "bbox": box,
                "area": 450,
                "iscrowd": 0,
                "segmentation": [polygon],
                "keypoints": [int(x), int(y), 2],
                "num_keypoints": 1,
            }
        )
        relative = " ".join(str(v / (WIDE, HIGH)[i % 2]) for i, v in enumerate(POLYGON))
        (root / "labels" / f"{o}.txt").write_text(f"0 {relative}\n")
        corners = "".join(f"<{n}>{v}</{n}>" for n, v in zip(("xmin", "ymin", "xmax", "ymax"), b, strict=True))
        size = f"<size><width>{w}</width><height>{h}</height><depth>3</depth></size>"
        (root / "voc" / "Annotations" / f"{o}.xml").write_text(
            f"<annotation>{size}<object><name>dog</name><bndbox>{corners}</bndbox></object></annotation>"
        )
        for d in ("SegmentationClass", "SegmentationObject"):
            Image.fromarray((frame[..., 0] > 200).astype(np.uint8)).save(root / "voc" / d / f"{o}.png")
    categories = [{"id": 1, "name": "a", "keypoints": ["n"]}]
    (root / "coco.json").write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": categories})
    )
    (root / "data.yaml").write_text("train: images\nval: images\nnames: [a]\n")
    yield root, request.param


def corners(box: np.ndarray, how: str) -> list[float]:
    a, b, c, d = (float(v) for v in box)
    if how == "XYWH":
        return [a, b, a + c, b + d]
    return [a - c / 2, b - d / 2, a + c / 2, b + d / 2] if how == "CXCYWH" else [a, b, c, d]


def check(url: str, turned: bool) -> None:
    """Compare boxes, key points and masks with the white rectangle of their image."""
    crop: list[Any] = [T.CenterCrop((CROP, CROP)), T.RandomHorizontalFlip()]
    fields: dict[str, Any] = {"image": crop}
    if "classes" in url or "instances" in url or url.endswith(".mask"):
        fields["mask"] = crop
    with stoker.Loader(url, batch_size=1, transforms=fields, apply_orientation=turned, seed=3) as loader:
        for batch in loader:
            white = batch.image[0][..., 0] > 200
            have = np.clip(corners(np.asarray(batch.boxes[0])[0], str(loader.formats["boxes"])), 0, CROP)
            assert np.abs(have - bounds(white)).max() < 0.01
            if "keypoints" in batch:
                x, y = np.asarray(batch["keypoints"][0]).reshape(2)
                assert 0 <= x < CROP and 0 <= y < CROP and white[int(y), int(x)]
            for name in ("mask", "masks"):
                if name in batch:
                    mask = np.asarray(batch[name][0]).reshape(CROP, CROP) > 0
                    assert (mask != white).mean() < 0.02


@pytest.mark.parametrize("masks", ["", "classes", "instances", "stack"])
@pytest.mark.parametrize("kind", ["yolo", "coco", "voc"])
def test_annotations_follow_orientation(photos: tuple[Path, str], tmp_path: Path, kind: str, masks: str) -> None:
    """By default, turned, and out of a pack of either kind."""
    root, frame = photos
    if kind == "yolo" and frame == "stored":
        pytest.skip("YOLO has one frame")
    query = f"masks={masks}" if masks else ""
    where = {
        "yolo": f"{root}/data.yaml?split=train&",
        "coco": f"{root}/coco.json?images=images&",
        "voc": f"{root}/voc?",
    }
    url = f"{kind}:{where[kind]}{query}".rstrip("?&")
    pack = str(tmp_path / ("pack.mask" if masks in ("classes", "instances") else "pack"))
    subprocess.run([find_binary(), "pack", url, pack, "--images", "raw" if masks == "stack" else "dct"], check=True)
    for turned in (False, True):
        check(url, turned)
        check(pack, turned)


def both(root: Path, **annotation: Any) -> str:
    """Write an upside-down image and one annotation of COCO."""
    root = root / "data"
    root.mkdir()
    exif = Image.Exif()
    exif[0x112] = 3
    Image.fromarray(stored(picture(), 3)).save(root / "a.png", exif=exif)
    size = {"width": WIDE, "height": HIGH} | annotation
    box = [BOX[0], BOX[1], BOX[2] - BOX[0], BOX[3] - BOX[1]]
    (root / "c.json").write_text(
        json.dumps(
            {
                "images": [{"id": 1, "file_name": "a.png"} | {k: v for k, v in size.items() if v}],
                "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": box}],
                "categories": [{"id": 1, "name": "a"}],
            }
        )
    )
    return f"coco:{root}/c.json?images=."


@pytest.mark.parametrize("size", [{}, {"width": 0, "height": 0}])
def test_annotations_that_do_not_say_their_frame(tmp_path: Path, size: dict[str, int]) -> None:
    """An upside-down image has the same size when turned. It is refused, or with apply_orientation read as shown."""
    url = both(tmp_path, **size)
    with stoker.Loader(url, batch_size=1) as loader, pytest.raises(stoker.StokerError, match="apply_orientation=True"):
        next(iter(loader))
    check(url, turned=True)


def test_annotations_of_another_size(tmp_path: Path) -> None:
    """A stated size that the file does not have is an error of the record, which names both."""
    url = both(tmp_path, width=100, height=90)
    with (
        stoker.Loader(url, batch_size=1) as loader,
        pytest.raises(stoker.StokerError, match=r"a\.png.*100 x 90.*60 x 80"),
    ):
        next(iter(loader))
    packed = subprocess.run(
        [find_binary(), "pack", url, str(tmp_path / "p")], capture_output=True, text=True, check=False
    )
    assert packed.returncode != 0 and "100 x 90" in packed.stderr + packed.stdout


@pytest.mark.parametrize(
    ("mask", "orientation", "hint"),
    [
        ((40, 30), 1, "same size"),
        ((79, 60), 1, "same size"),
        ((60, 80), 1, "same size"),
        ((60, 80), 6, "apply_orientation=True"),
        ((80, 60), 3, "apply_orientation=True"),
    ],
)
def test_masks_have_the_size_of_their_image(tmp_path: Path, mask: tuple[int, int], orientation: int, hint: str) -> None:
    """Pairs of different sizes are refused, in loaders and packs, with both names and sizes."""
    data = tmp_path / "data"
    for d in ("images", "masks"):
        (data / d).mkdir(parents=True)
    exif = Image.Exif()
    exif[0x112] = orientation
    for name, size in (("a", (80, 60)), ("b", mask)):  # the first pair is good
        Image.new("RGB", (80, 60)).save(data / "images" / f"{name}.png", exif=exif if name == "b" else None)
        Image.new("L", size).save(data / "masks" / f"{name}.png")
    url = f"pairs:{data}?image=images/*.png&mask=masks/*.png"
    fields: dict[str, Any] = {n: [T.CenterCrop(20)] for n in ("image", "mask")}
    with stoker.Loader(url, batch_size=1, transforms=fields) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(stoker.StokerError, match=hint) as error:
            next(batches)
    assert "images/b.png" in str(error.value) and "masks/b.png" in str(error.value)
    if orientation == 1:
        assert "80 x 60" in str(error.value) and f"{mask[0]} x {mask[1]}" in str(error.value)
    packed = subprocess.run(
        [find_binary(), "pack", url, str(tmp_path / "p")], capture_output=True, text=True, check=False
    )
    if orientation > 1:
        assert packed.returncode == 0
        for turned in (False, True):
            with stoker.Loader(
                str(tmp_path / "p"), batch_size=2, transforms=fields, apply_orientation=turned
            ) as loader:
                if turned:
                    next(iter(loader))
                else:
                    with pytest.raises(stoker.StokerError, match="apply_orientation=True"):
                        next(iter(loader))
    else:
        assert packed.returncode == 3
        assert "80 x 60" in packed.stdout + packed.stderr and f"{mask[0]} x {mask[1]}" in packed.stdout + packed.stderr


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
def test_encodings_of_coco(tmp_path: Path, encoding: str) -> None:
    """Encodings that json.load detects. Outlines come out of the same file."""
    Image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    annotation = {
        "id": 1,
        "image_id": 1,
        "category_id": 1,
        "bbox": [1, 2, 3, 4],
        "segmentation": [[2, 2, 9, 2, 9, 9, 2, 9]],
    }
    text = json.dumps(
        {
            "images": [{"id": 1, "file_name": "a.png", "width": 20, "height": 20}],
            "categories": [{"id": 1, "name": "犬"}],
            "annotations": [annotation, {**annotation, "bbox": None}, {**annotation, "bbox": []}],
        },
        ensure_ascii=False,
    )
    (tmp_path / "c.json").write_bytes(text.encode(encoding))
    with stoker.Loader(f"{tmp_path}/c.json?images=.&masks=stack", batch_size=1, transforms={"image": []}) as loader:
        batch = next(iter(loader))
        assert loader.classes == ["犬"]
        assert np.asarray(batch.boxes[0]).tolist() == [[1, 2, 3, 4]]  # and none of those without a box
        assert np.asarray(batch.masks[0]).sum() == 49
    shown = subprocess.run(
        [find_binary(), "inspect", f"{tmp_path}/c.json?images=."], capture_output=True, text=True, check=True
    )
    assert "2 annotations have no box" in shown.stdout + shown.stderr


@pytest.mark.parametrize("encoding", ["latin-1", "iso-8859-1", "gb2312", "utf-16", "utf-8-sig"])
def test_encodings_of_voc(tmp_path: Path, encoding: str) -> None:
    """Those that XML declares."""
    for d in ("JPEGImages", "Annotations"):
        (tmp_path / d).mkdir()
    Image.new("RGB", (20, 20)).save(tmp_path / "JPEGImages" / "a.png")
    name = "犬" if encoding in ("gb2312", "utf-16") else "hund"
    name = "hünd" if encoding in ("latin-1", "iso-8859-1") else name
    box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox>"
    declared = "utf-8" if encoding == "utf-8-sig" else encoding
    text = (
        f"<?xml version='1.0' encoding='{declared}'?><annotation><object><name>{name}</name>{box}</object></annotation>"
    )
    (tmp_path / "Annotations" / "a.xml").write_bytes(text.encode(encoding))
    with stoker.Loader(str(tmp_path), batch_size=1, transforms={"image": []}) as loader:
        assert np.asarray(next(iter(loader)).boxes[0]).tolist() == [[1, 2, 3, 4]]
        assert loader.classes == [name]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_encodings_of_yolo(tmp_path: Path, encoding: str) -> None:
    """A byte order mark does not become part of the first class, and lines may end in CR."""
    for d in ("images", "labels"):
        (tmp_path / d).mkdir()
    Image.new("RGB", (20, 20)).save(tmp_path / "images" / "a.png")
    (tmp_path / "labels" / "a.txt").write_bytes("0 0.5 0.5 0.5 0.5\r1 0.25 0.25 0.5 0.5\r".encode(encoding))
    with stoker.Loader(f"yolo:{tmp_path}", batch_size=1, transforms={"image": []}) as loader:
        assert np.asarray(next(iter(loader)).labels[0]).tolist() == [0, 1]


@pytest.mark.parametrize("packed", [False, True])
def test_converted_files_are_not_turned(photos: tuple[Path, str], tmp_path: Path, packed: bool) -> None:
    """Images next to converted boxes have no orientation: every reader sees both in one frame."""
    root, _ = photos
    url = f"coco:{root}/coco.json?images=images"
    if packed:
        subprocess.run([find_binary(), "pack", url, str(tmp_path / "p"), "--images", "keep"], check=True)
        url = str(tmp_path / "p")
    subprocess.run([find_binary(), "convert", url, f"parquet:{tmp_path}/out"], check=True)
    rows = pytest.importorskip("pyarrow.parquet").read_table(next((tmp_path / "out").rglob("*.parquet"))).to_pylist()
    assert len(rows) == 5
    for row in rows:
        image = Image.open(io.BytesIO(row["image"]["bytes"]))
        assert image.getexif().get(0x112, 1) == 1
        have = corners(np.asarray(row["boxes"])[0], "XYWH")
        assert have == bounds(np.asarray(image)[..., 0] > 200)
