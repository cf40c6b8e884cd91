"""Boxes, key points and masks, compared with pycocotools, torchvision v2 and plain reading, directly and packed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker import transforms as T
from support import cli, packed

Make = Callable[..., stoker.Loader]
COUNT = 40
SIDE = 64
NAMES = ["person", "dog", "bird"]


def rle_text(mask: np.ndarray) -> dict[str, Any]:
    pycoco = pytest.importorskip("pycocotools.mask")
    rle = pycoco.encode(np.asfortranarray(mask))
    return {"size": rle["size"], "counts": rle["counts"].decode()}


def shapes(rng: np.random.Generator, w: int, h: int, how: int) -> Any:
    """Return an outline in one of COCO's three forms."""
    if how == 0:
        polygons = [
            rng.uniform(-2, 1.05 * max(w, h), (int(rng.integers(3, 9)), 2)) for _ in range(int(rng.integers(1, 3)))
        ]
        return [np.round(p, 2).ravel().tolist() for p in polygons]
    mask = np.zeros((h, w), np.uint8)
    for _ in range(3):
        x, y = rng.integers(0, w), rng.integers(0, h)
        mask[y : y + rng.integers(1, 20), x : x + rng.integers(1, 20)] = 1
    if how == 1:
        return rle_text(mask)
    flat = mask.ravel(order="F")
    ends = np.flatnonzero(np.diff(flat)) + 1
    lengths = np.diff([0, *ends, flat.size]).tolist()
    return {"size": [h, w], "counts": lengths if flat[0] == 0 else [0, *lengths]}


@pytest.fixture(scope="module")
def coco(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as COCO has it: annotations of all forms, images without any, numbers in no order."""
    root = tmp_path_factory.mktemp("coco")
    (root / "val2017").mkdir()
    (root / "annotations").mkdir()
    rng = np.random.default_rng(3)
    images, annotations, captions = [], [], []
    for i in range(COUNT):
        w, h = (int(v) for v in rng.integers(40, 120, 2))
        name = f"{(i * 17) % COUNT:012d}.jpg"
        Image.fromarray(rng.integers(0, 255, (h, w, 3), dtype=np.uint8)).save(root / "val2017" / name)
        images.append(
            {"id": 1000 - 7 * i, "file_name": name, "width": w, "height": h, "license": 2, "date_captured": "x"}
        )
        for k in range(int(rng.integers(0, 6))):
            x, y = rng.uniform(0, w - 8), rng.uniform(0, h - 8)
            box = [round(float(v), 2) for v in (x, y, rng.uniform(0.5, w - x), rng.uniform(0.5, h - y))]
            points = rng.uniform(0, min(w, h), (4, 3))
            points[:, 2] = rng.integers(0, 3, 4)
            annotations.append({
                "id": 10 * i + k + 1, "image_id": 1000 - 7 * i, "category_id": int(rng.choice([1, 18, 90])),
                "bbox": box, "area": round(float(rng.uniform(1, 900)), 4), "iscrowd": int(k == 4),
                "segmentation": shapes(rng, w, h, k % 3),
                "keypoints": np.round(points, 1).ravel().tolist(), "num_keypoints": 4,
            })  # fmt: skip
        captions.extend(
            {"id": 5 * i + k, "image_id": 1000 - 7 * i, "caption": f'"{i}" läuft {k}'} for k in range(i % 4)
        )
    order = rng.permutation(len(annotations))
    base = {"info": {"description": "x"}, "images": images, "licenses": []}
    categories = [{"id": n, "name": name} for n, name in zip((1, 18, 90), NAMES, strict=True)]
    whole = {**base, "annotations": [annotations[k] for k in order], "categories": categories}
    (root / "annotations" / "instances_val2017.json").write_text(json.dumps(whole))
    (root / "annotations" / "captions_val2017.json").write_text(json.dumps({**base, "annotations": captions}))
    return root


@pytest.fixture(scope="module")
def api(coco: Path) -> Any:
    pycoco = pytest.importorskip("pycocotools.coco")
    return pycoco.COCO(str(coco / "annotations" / "instances_val2017.json"))


@pytest.fixture(scope="module", params=["as it is", "packed"])
def instances(request: pytest.FixtureRequest, binary: str, coco: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"{coco}/annotations/instances_val2017.json?masks=instances"
    return (
        url
        if request.param == "as it is"
        else str(packed(binary, url, tmp_path_factory.mktemp("p") / "pack", "--images", "keep"))
    )


def rows(loader: stoker.Loader) -> Iterator[tuple[stoker.Batch, int]]:
    for batch in loader:
        for row in range(len(batch)):
            yield batch, row


def test_instances(make: Make, instances: str, api: Any) -> None:
    """Every record equals pycocotools': boxes, classes, areas, crowds, key points and outlines."""
    names = ["boxes", "labels", "iscrowd", "area", "keypoints", "visibility", "instances", "image_id"]
    sizes = {i["id"]: (i["height"], i["width"]) for i in api.loadImgs(api.getImgIds())}
    loader = make(stoker.open(instances).select(*names), batch_size=8)
    assert loader.classes == NAMES
    ids = [1, 18, 90]
    seen = []
    for batch, row in rows(loader):
        image = int(batch.image_id[row])
        seen.append(image)
        anns = api.loadAnns(api.getAnnIds(image))
        np.testing.assert_array_equal(batch.boxes[row], np.array([a["bbox"] for a in anns], np.float32).reshape(-1, 4))
        assert batch.labels[row].tolist() == [ids.index(a["category_id"]) for a in anns]
        assert batch.iscrowd[row].tolist() == [a["iscrowd"] for a in anns]
        np.testing.assert_array_equal(batch.area[row], np.array([a["area"] for a in anns], np.float32))
        points = np.array([a["keypoints"] for a in anns], np.float32).reshape(-1, 4, 3)
        np.testing.assert_array_equal(batch.keypoints[row], points[:, :, :2])
        np.testing.assert_array_equal(batch.visibility[row], points[:, :, 2])
        assert batch.instances[row].tolist() == list(range(1, len(anns) + 1))
    assert seen == [1000 - 7 * i for i in range(COUNT)]
    assert len(sizes) == COUNT


def painted(api: Any, image: int, color: Callable[[int, Any], int]) -> np.ndarray:
    info = api.loadImgs(image)[0]
    want = np.zeros((info["height"], info["width"]), np.uint16)
    for k, ann in enumerate(api.loadAnns(api.getAnnIds(image))):
        want[api.annToMask(ann).astype(bool)] = color(k, ann)
    return want


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # of pycocotools
@pytest.mark.parametrize("masks", ["classes", "instances"])
def test_masks(make: Make, coco: Path, api: Any, masks: str) -> None:
    """Masks are pixel for pixel those of pycocotools, painted in the order of the file."""
    ids = [1, 18, 90]
    loader = make(
        f"coco:{coco}/annotations/instances_val2017.json?images=val2017&masks={masks}", batch_size=4,
        transforms={"image": [T.CenterCrop(130)], "mask": [T.CenterCrop(130)]},
    )  # fmt: skip
    assert loader.info["classes"].get("mask") == (["background", *NAMES] if masks == "classes" else None)
    found = 0
    for batch, row in rows(loader):
        want = painted(
            api,
            int(batch.image_id[row]),
            lambda k, a: k + 1 if masks == "instances" else ids.index(a["category_id"]) + 1,
        )
        h, w = want.shape
        y, x = (130 - h) // 2, (130 - w) // 2
        np.testing.assert_array_equal(batch.mask[row][y : y + h, x : x + w], want)
        assert batch.mask[row].sum() == want.sum()
        found += int(want.max() > 0)
    assert found > 20


def test_captions(make: Make, coco: Path) -> None:
    """Captions are lists for each image, in the order of the file."""
    loader = make(
        stoker.open(coco / "annotations" / "captions_val2017.json").select("captions", "image_id"), batch_size=8
    )
    assert len(loader) == COUNT / 8
    for i, (batch, row) in enumerate(rows(loader)):
        assert json.loads(batch.captions[row]) == [f'"{i}" läuft {k}' for k in range(i % 4)]


def test_found_by_content(binary: str, coco: Path, tmp_path: Path) -> None:
    """The JSON, the folder around it and Roboflow's layout are detected without options."""

    def inspect(path: Path | str) -> Any:
        return json.loads(cli(binary, "inspect", path, "--json"))

    found = inspect(coco / "annotations" / "instances_val2017.json")
    assert found["format"] == "coco" and found["records"] == COUNT
    boxes = next(f for f in found["fields"] if f["name"] == "boxes")
    assert boxes["kind"] == "boxes" and boxes["format"] == "XYWH" and boxes["shape"] == [4]
    assert inspect(f"{coco}?split=val2017")["records"] == COUNT
    (tmp_path / "train").mkdir()
    for path in (coco / "val2017").iterdir():
        (tmp_path / "train" / path.name).write_bytes(path.read_bytes())
    text = (coco / "annotations" / "instances_val2017.json").read_text()
    (tmp_path / "train" / "_annotations.coco.json").write_text(text)
    assert inspect(tmp_path / "train")["format"] == "coco"
    shown = cli(binary, "inspect", tmp_path / "train")
    assert "LetterBox" in shown and "of boxes" in shown


# --- Pascal VOC and YOLO ------------------------------------------------------


@pytest.fixture(scope="module")
def voc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as Pascal VOC has it."""
    root = tmp_path_factory.mktemp("voc") / "VOC2012"
    for name in ("Annotations", "JPEGImages", "SegmentationClass", "SegmentationObject", "ImageSets/Main"):
        (root / name).mkdir(parents=True)
    rng = np.random.default_rng(5)
    for i in range(COUNT):
        w, h = (int(v) for v in rng.integers(30, 70, 2))
        stem = f"2007_{i:06}"
        Image.fromarray(rng.integers(0, 255, (h, w, 3), dtype=np.uint8)).save(root / f"JPEGImages/{stem}.jpg")
        top = ElementTree.Element("annotation")
        ElementTree.SubElement(top, "filename").text = f"{stem}.jpg"
        for k in range(int(rng.integers(0, 4))):
            entry = ElementTree.SubElement(top, "object")
            ElementTree.SubElement(entry, "name").text = ["person", "dog", "tvmonitor"][k]
            for flag in ("truncated", "difficult"):
                ElementTree.SubElement(entry, flag).text = str(int(rng.integers(0, 2)))
            box = ElementTree.SubElement(entry, "bndbox")
            for side, value in zip(("xmin", "ymin", "xmax", "ymax"), (1 + k, 2, 20.5, 25), strict=True):
                ElementTree.SubElement(box, side).text = str(value)
            part = ElementTree.SubElement(ElementTree.SubElement(entry, "part"), "bndbox")
            ElementTree.SubElement(part, "xmin").text = "7"
        if i != 3:
            ElementTree.ElementTree(top).write(root / f"Annotations/{stem}.xml")
        if i % 2 == 0:
            for kind in ("SegmentationClass", "SegmentationObject"):
                mask = Image.fromarray(rng.integers(0, 21, (h, w), dtype=np.uint8), mode="P")
                mask.putpalette(rng.integers(0, 255, 768, dtype=np.uint8).tolist())
                mask.save(root / f"{kind}/{stem}.png")
    (root / "ImageSets/Main/train.txt").write_text("".join(f"2007_{i:06}\n" for i in range(0, COUNT, 3)))
    return root


@pytest.mark.parametrize("how", ["as it is", "packed"])
def test_voc(make: Make, binary: str, voc: Path, tmp_path: Path, how: str) -> None:
    """Every record equals ElementTree's reading."""
    source = str(voc) if how == "as it is" else str(packed(binary, voc, tmp_path / "pack", "--images", "keep"))
    names = ["boxes", "labels", "difficult", "truncated"]
    loader = make(stoker.open(source).select(*names), batch_size=8)
    assert loader.formats == {"boxes": "XYXY"} and len(loader.classes) == 20
    n = objects = 0
    for i, (batch, row) in enumerate(rows(loader)):
        path = voc / f"Annotations/2007_{i:06}.xml"
        found = ElementTree.parse(path).getroot().findall("object") if path.exists() else []
        boxes = [[float(o.findtext(f"bndbox/{s}", "")) for s in ("xmin", "ymin", "xmax", "ymax")] for o in found]
        np.testing.assert_array_equal(batch.boxes[row], np.array(boxes, np.float32).reshape(-1, 4))
        assert [loader.classes[c] for c in batch.labels[row]] == [o.findtext("name") for o in found]
        for flag in ("difficult", "truncated"):
            assert batch[flag][row].tolist() == [int(o.findtext(flag, "")) for o in found]
        n, objects = n + 1, objects + len(found)
    assert n == COUNT and objects > 20
    assert len(make(stoker.open(voc)["train"].select(*names), batch_size=1)) == 14


@pytest.mark.parametrize(("masks", "folder"), [("classes", "SegmentationClass"), ("instances", "SegmentationObject")])
def test_voc_masks(make: Make, voc: Path, masks: str, folder: str) -> None:
    """Masks are those of the PNG files."""
    crop = [T.CenterCrop(70)]
    loader = make(f"{voc}?masks={masks}", batch_size=4, transforms={"image": crop, "mask": crop})
    for i, (batch, row) in enumerate(rows(loader)):
        with Image.open(voc / f"{folder}/2007_{2 * i:06}.png") as picture:
            want = np.array(picture)
        h, w = want.shape
        y, x = (70 - h) // 2, (70 - w) // 2
        np.testing.assert_array_equal(batch.mask[row][y : y + h, x : x + w], want)
    assert i == COUNT / 2 - 1


@pytest.fixture(scope="module")
def yolo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as Ultralytics has it: boxes, polygons, and images without either."""
    root = tmp_path_factory.mktemp("yolo")
    rng = np.random.default_rng(6)
    for split, count in (("train", COUNT), ("val", 5)):
        (root / "images" / split).mkdir(parents=True)
        (root / "labels" / split).mkdir(parents=True)
        for i in range(count):
            w, h = (int(v) for v in rng.integers(30, 70, 2))
            Image.fromarray(rng.integers(0, 255, (h, w, 3), dtype=np.uint8)).save(root / f"images/{split}/{i:04}.png")
            lines = []
            for k in range(i % 4):
                numbers = rng.uniform(0, 1, 4 if k < 2 else 10)
                lines.append(" ".join([str(int(rng.integers(0, 3))), *(f"{v:.6f}" for v in numbers)]))
            if lines:
                (root / f"labels/{split}/{i:04}.txt").write_text("\n".join(lines) + "\n")
    names = "".join(f"  {i}: {name}\n" for i, name in enumerate(NAMES))
    (root / "data.yaml").write_text(f"path: .\ntrain: images/train\nval: images/val  # few\nnames:\n{names}")
    return root


@pytest.mark.parametrize("how", ["as it is", "packed"])
def test_yolo(make: Make, binary: str, yolo: Path, tmp_path: Path, how: str) -> None:
    """Every record equals a plain reading."""
    url = f"{yolo}/data.yaml?split=train&masks=instances"
    source = url if how == "as it is" else str(packed(binary, url, tmp_path / "pack", "--images", "keep"))
    loader = make(source, batch_size=8, transforms={"image": [T.CenterCrop(70)], "mask": [T.CenterCrop(70)]})
    assert loader.formats == {"boxes": "CXCYWH"} and loader.classes == NAMES
    plain = make(stoker.open(source).select("boxes", "labels", "instances"), batch_size=8)
    for i, (batch, row) in enumerate(rows(plain)):
        path = yolo / f"labels/train/{i:04}.txt"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        with Image.open(yolo / f"images/train/{i:04}.png") as picture:
            w, h = picture.size
        want = []
        for line in lines:
            v = np.array(line[1:], np.float64).astype(np.float32)
            if len(v) > 4:
                x, y = v[::2], v[1::2]
                v = np.array([(x.min() + x.max()) / 2, (y.min() + y.max()) / 2, x.max() - x.min(), y.max() - y.min()])
            want.append(v * np.array([w, h, w, h], np.float32))
        np.testing.assert_allclose(batch.boxes[row], np.array(want, np.float32).reshape(-1, 4), rtol=1e-6)
        assert batch.labels[row].tolist() == [int(line[0]) for line in lines]
        assert batch.instances[row].tolist() == list(range(1, len(lines) + 1))
    assert i == COUNT - 1
    for i, (batch, row) in enumerate(rows(loader)):
        assert batch.mask[row].max() <= i % 4
    assert len(make(stoker.open(yolo)["val"].select("labels"), batch_size=1)) == 5


def own_masks(kind: str, root: Path, i: int) -> np.ndarray:
    """Return the masks of the objects of image i, as pycocotools paints them or the PNG file has them."""
    if kind == "voc":
        with Image.open(root / f"SegmentationObject/{i}.png") as picture:
            numbers = np.array(picture)
        return np.stack([numbers == k + 1 for k in range(i + 1)]).astype(np.uint8)
    pycoco = pytest.importorskip("pycocotools.mask")
    with Image.open(root / f"images/train/{i:04}.png") as picture:
        w, h = picture.size
    path = root / f"labels/train/{i:04}.txt"
    out = []
    for line in path.read_text().splitlines() if path.exists() else []:
        v = np.array(line.split()[1:], np.float64).astype(np.float32).astype(np.float64)
        if len(v) == 4:
            box = [(v[0] - v[2] / 2) * w, (v[1] - v[3] / 2) * h, v[2] * w, v[3] * h]
            rle = pycoco.frPyObjects(np.array([box]), h, w)
        else:
            rle = pycoco.frPyObjects([(v * np.tile([w, h], len(v) // 2)).tolist()], h, w)
        out.append(pycoco.decode(rle)[..., 0])
    return np.stack(out) if out else np.zeros((0, h, w), np.uint8)


@pytest.fixture(scope="module")
def segmented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as Pascal VOC has it for segmentation: image i has i + 1 objects, and a border."""
    root = tmp_path_factory.mktemp("segmented")
    for name in ("Annotations", "JPEGImages", "SegmentationObject"):
        (root / name).mkdir()
    rng = np.random.default_rng(8)
    for i in range(6):
        h, w = 30 + i, 40 - i
        Image.fromarray(rng.integers(0, 255, (h, w, 3), dtype=np.uint8)).save(root / f"JPEGImages/{i}.jpg")
        numbers = rng.choice([0, 255, *range(1, i + 2)], (h, w)).astype(np.uint8)
        mask = Image.fromarray(numbers, mode="P")
        mask.putpalette(rng.integers(0, 255, 768, dtype=np.uint8).tolist())
        mask.save(root / f"SegmentationObject/{i}.png")
        top = ElementTree.Element("annotation")
        for k in range(i + 1):
            entry = ElementTree.SubElement(top, "object")
            ElementTree.SubElement(entry, "name").text = ["person", "dog"][k % 2]
            box = ElementTree.SubElement(entry, "bndbox")
            for side, value in zip(("xmin", "ymin", "xmax", "ymax"), (1 + k, 2, 20, 25), strict=True):
                ElementTree.SubElement(box, side).text = str(value)
        ElementTree.ElementTree(top).write(root / f"Annotations/{i}.xml")
    return root


@pytest.fixture(params=["voc", "yolo"])
def stacked(request: pytest.FixtureRequest, segmented: Path, yolo: Path) -> tuple[str, Path, str]:
    """Return a kind of data, its folder and its URL with a mask for each object."""
    if request.param == "voc":
        return "voc", segmented, f"{segmented}?masks=stack"
    return "yolo", yolo, f"{yolo}/data.yaml?split=train&masks=stack"


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # pycocotools with NumPy 2
@pytest.mark.parametrize("how", ["as it is", "packed"])
def test_stacks(make: Make, binary: str, stacked: tuple[str, Path, str], tmp_path: Path, how: str) -> None:
    """A mask for each object, which follows the image; rows of boxes that are dropped go."""
    kind, root, url = stacked
    source = url if how == "as it is" else str(packed(binary, url, tmp_path / "pack", "--images", "keep"))
    crop = [T.CenterCrop(70)]
    for i, (batch, row) in enumerate(rows(make(source, batch_size=4, transforms={"image": crop}))):
        want = own_masks(kind, root, i)
        n, h, w = want.shape
        y, x = (70 - h) // 2, (70 - w) // 2
        assert batch.masks[row].shape == (n, 70, 70) and len(batch.boxes[row]) == n
        np.testing.assert_array_equal(batch.masks[row][:, y : y + h, x : x + w], want)
    assert i == (5 if kind == "voc" else COUNT - 1)
    few = make(source, batch_size=4, transforms={"image": [*crop, T.SanitizeBoundingBoxes(min_size=12)]})
    assert all(len(batch.masks[row]) == len(batch.boxes[row]) for batch, row in rows(few))


def test_more_instances_than_objects(make: Make, segmented: Path, tmp_path: Path) -> None:
    shutil.copytree(segmented, tmp_path / "voc")
    shutil.copy(tmp_path / "voc/Annotations/0.xml", tmp_path / "voc/Annotations/4.xml")
    with pytest.raises(stoker.StokerError, match=r"SegmentationObject/4\.png: the pixel \d+, \d+ has object number \d"):
        list(make(f"{tmp_path / 'voc'}?masks=stack", batch_size=6, transforms={"image": [T.CenterCrop(20)]}))


# --- compared with torchvision -----------------------------------------------


def v2() -> Any:
    return pytest.importorskip("torchvision.transforms.v2")


LISTS: dict[str, tuple[Callable[[], list[Any]], Callable[[Any], list[Any]]]] = {
    "resize": (lambda: [T.Resize((50, 70))], lambda t: [t.Resize((50, 70))]),
    "crop": (lambda: [T.CenterCrop((38, 35))], lambda t: [t.CenterCrop((38, 35))]),
    "pad": (
        lambda: [T.Resize((40, 60)), T.Pad((3, 5, 7, 11))],
        lambda t: [t.Resize((40, 60)), t.Pad((3, 5, 7, 11))],
    ),
    "flips": (
        lambda: [T.Resize((50, 50)), T.RandomHorizontalFlip(1), T.RandomVerticalFlip(1)],
        lambda t: [t.Resize((50, 50)), t.RandomHorizontalFlip(1), t.RandomVerticalFlip(1)],
    ),
    "rotation": (
        lambda: [T.Resize((60, 50)), T.RandomRotation((33, 33))],
        lambda t: [t.Resize((60, 50)), t.RandomRotation((33, 33))],
    ),
    "rotation about a point": (
        lambda: [T.Resize((60, 50)), T.RandomRotation((-20, -20), center=(10, 44))],
        lambda t: [t.Resize((60, 50)), t.RandomRotation((-20, -20), center=(10, 44))],
    ),
    "rotation that expands": (
        lambda: [T.Resize((60, 50)), T.RandomRotation((33, 33), expand=True)],
        lambda t: [t.Resize((60, 50)), t.RandomRotation((33, 33), expand=True)],
    ),
    "quarter turn": (
        lambda: [T.Resize((60, 50)), T.RandomRotation((90, 90), expand=True)],
        lambda t: [t.Resize((60, 50)), t.RandomRotation((90, 90), expand=True)],
    ),
    "affine": (
        lambda: [T.Resize((60, 50)), T.RandomAffine((12, 12), scale=(1.3, 1.3), shear=(5, 5, -8, -8))],
        lambda t: [t.Resize((60, 50)), t.RandomAffine((12, 12), scale=(1.3, 1.3), shear=(5, 5, -8, -8))],
    ),
    "a list": (
        lambda: [
            T.RandomRotation((10, 10)),
            T.Resize(56),
            T.CenterCrop((48, 52)),
            T.RandomHorizontalFlip(1),
            T.RandomAffine((-9, -9)),
            T.ClampKeyPoints(),
            T.SanitizeBoundingBoxes(min_size=4, min_area=50),
        ],
        lambda t: [
            t.RandomRotation((10, 10)),
            t.Resize(56),
            t.CenterCrop((48, 52)),
            t.RandomHorizontalFlip(1),
            t.RandomAffine((-9, -9)),
            t.ClampKeyPoints(),
            t.SanitizeBoundingBoxes(min_size=4, min_area=50, labels_getter=lambda s: (s["labels"], s["rows"])),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", ["XYXY", "XYWH", "CXCYWH"])
@pytest.mark.parametrize("name", LISTS)
def test_boxes_follow_as_in_torchvision(make: Make, instances: str, api: Any, name: str, form: str) -> None:
    """Boxes and key points are those of torchvision's tv_tensors within 0.001, and the same ones are dropped."""
    t = v2()
    import torch
    from torchvision import tv_tensors

    ours, theirs = LISTS[name]
    loader = make(instances, batch_size=8, transforms={"image": [*ours(), T.ConvertBoundingBoxFormat(form)]})
    assert loader.formats["boxes"] == form
    compose = t.Compose([*theirs(t), t.ConvertBoundingBoxFormat(form)])
    dropped = total = 0
    for batch, row in rows(loader):
        image = int(batch.image_id[row])
        info = api.loadImgs(image)[0]
        size = info["height"], info["width"]
        anns = api.loadAnns(api.getAnnIds(image))
        total += len(anns)
        if not anns:
            assert len(batch.boxes[row]) == len(batch.keypoints[row]) == len(batch.labels[row]) == 0
            continue
        points = torch.tensor([a["keypoints"] for a in anns], dtype=torch.float32).reshape(-1, 4, 3)[:, :, :2]
        sample = {
            "image": tv_tensors.Image(torch.zeros(3, *size, dtype=torch.uint8)),
            "boxes": tv_tensors.BoundingBoxes(
                torch.tensor([a["bbox"] for a in anns], dtype=torch.float32), format="XYWH", canvas_size=size
            ),
            "labels": torch.tensor([a["category_id"] for a in anns]),
            "rows": torch.arange(1, len(anns) + 1),
            "points": tv_tensors.KeyPoints(points, canvas_size=size),
        }
        want = compose(sample)
        assert batch.image[row].shape[:2] == tuple(want["image"].shape[-2:])
        np.testing.assert_allclose(batch.boxes[row], want["boxes"].numpy(), atol=1e-3, rtol=0)
        assert batch.instances[row].tolist() == want["rows"].tolist()
        assert [[1, 18, 90][c] for c in batch.labels[row].tolist()] == want["labels"].tolist()
        kept = want["points"].numpy()[want["rows"].numpy() - 1]
        np.testing.assert_allclose(batch.keypoints[row], kept, atol=1e-3, rtol=0)
        dropped += len(anns) - len(want["rows"])
    assert (dropped > 0) == (name == "a list") and total > 60


def test_boxes_follow_random_moves(make: Make, instances: str) -> None:
    """Masks and boxes move alike: the box around an instance of a mask is its box, moved."""
    moves = [
        T.RandomResizedCrop(SIDE, scale=(0.5, 1)),
        T.RandomHorizontalFlip(),
        T.RandomAffine(10, translate=(0.1, 0.1)),
    ]
    loader = make(instances, batch_size=8, shuffle=True, seed=1, transforms={
        "image": [*moves, T.SanitizeBoundingBoxes(), T.ConvertBoundingBoxFormat("XYXY")], "mask": moves,
    })  # fmt: skip
    for batch in loader:
        for row in range(len(batch)):
            assert len(batch.boxes[row]) == len(batch.instances[row])
            assert (batch.boxes[row] >= 0).all() and (batch.boxes[row] <= SIDE).all()
            sides = batch.boxes[row][:, 2:] - batch.boxes[row][:, :2]
            assert (sides >= 1).all()


def test_mosaic(make: Make, instances: str) -> None:
    """Boxes and the arrays that belong to them come from four images, and are inside the result."""
    loader = make(
        instances, batch_size=8, shuffle=True, seed=2,
        transforms={"image": [T.Resize((SIDE, SIDE)), T.RandomHSV(), T.ConvertBoundingBoxFormat("XYXY"), T.Mosaic()]},
    )  # fmt: skip
    plain = make(instances, batch_size=8, shuffle=True, seed=2, transforms={"image": [T.Resize((SIDE, SIDE))]})
    for batch, before in zip(loader, plain, strict=True):
        assert (batch.index == before.index).all() and (batch.image != before.image).any()
        for row in range(len(batch)):
            boxes = batch.boxes[row]
            assert ((boxes >= 0) & (boxes <= SIDE)).all() and (boxes[:, 2:] - boxes[:, :2] > 2).all()
            assert len(boxes) == len(batch.labels[row]) == len(batch.area[row]) == len(batch.keypoints[row])
            near = {float(a) for k in range(4) for a in before.area[(row - k) % len(batch)]}
            assert {float(a) for a in batch.area[row]} <= near
