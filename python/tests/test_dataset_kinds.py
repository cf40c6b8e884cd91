"""Single records of each kind of data, compared with the libraries that read them, directly and packed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_formats
import test_segmentation
import test_tokens
from PIL import Image
from test_detection import api, coco, segmented  # noqa: F401

import stoker
from support import cli

FORMS = pytest.mark.parametrize("packed", [False, True], ids=["as it is", "packed"])


def opened(source: str | Path, packed: bool, binary: str, tmp_path: Path, *more: str) -> stoker.Dataset:
    """Return data, or the same in a pack."""
    if packed:
        out = tmp_path / "the-pack"
        cli(binary, "pack", source, out, *more)
        source = out
    return stoker.open(source)


def test_images_of_all_formats(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 255, (20, 30, 3), dtype=np.uint8)
    folder = tmp_path / "a"
    folder.mkdir()
    for name in ("0.png", "1.bmp", "2.webp", "3.tif", "4.gif"):
        Image.fromarray(pixels).save(folder / name)
    Image.fromarray(pixels[..., 0]).save(folder / "5.png")
    Image.fromarray(pixels[..., 0]).save(folder / "6.jpg")
    Image.fromarray(rng.integers(0, 255, (20, 30, 4), dtype=np.uint8), "RGBA").save(folder / "7.png")
    data = stoker.open(tmp_path)
    assert len(data) == 8
    for record in data:
        with Image.open(record.name) as image:
            expected = np.asarray(image.convert("RGB"))
        assert np.array_equal(record["image"], expected), record.name
        assert record["image"].dtype == np.uint8


@FORMS
def test_pairs(tmp_path: Path, binary: str, packed: bool) -> None:
    root = test_segmentation.write(tmp_path / "s", 6, 40, 52)
    data = opened(test_segmentation.unpacked(root), packed, binary, tmp_path, "--images", "keep")
    assert data.fields["mask"].dtype == "uint8"
    for i, record in enumerate(data):
        assert np.array_equal(record["mask"], np.asarray(Image.open(root / f"masks/{i:03}.png")))
        assert np.array_equal(record["image"], np.asarray(Image.open(root / f"images/{i:03}.png")))


@FORMS
def test_boxes_and_their_masks(tmp_path: Path, binary: str, packed: bool, coco: Path, api: Any) -> None:  # noqa: F811
    source = f"{coco}/annotations/instances_val2017.json?masks=instances"
    data = opened(source, packed, binary, tmp_path, "--images", "keep")
    assert data.fields["boxes"].format == "XYWH"
    assert data.classes == ["person", "dog", "bird"]
    assert data.fields["labels"].kind == "multilabel"
    for record in data:
        annotations = api.loadAnns(api.getAnnIds(imgIds=[record["image_id"]]))
        n, (h, w) = len(annotations), record["image"].shape[:2]
        boxes = np.array([a["bbox"] for a in annotations], np.float32).reshape(-1, 4)
        assert np.array_equal(record["boxes"], boxes)
        assert record["labels"].dtype == np.int64
        assert record["labels"].shape == (n,)
        assert record["keypoints"].shape == (n, 4, 2)
        assert record["mask"].shape == (h, w)
        assert record["mask"].max(initial=0) <= n


@FORMS
def test_stacks_of_masks(tmp_path: Path, binary: str, packed: bool, segmented: Path) -> None:  # noqa: F811
    data = opened(f"{segmented}?masks=stack", packed, binary, tmp_path, "--images", "keep")
    (field,) = [f for f in data.fields.values() if f.kind == "masks"]
    for i, record in enumerate(data):
        numbers = np.asarray(Image.open(segmented / f"SegmentationObject/{i}.png"))
        expected = np.stack([numbers == k for k in range(1, i + 2)])
        assert np.array_equal(record[field.name], expected)


@FORMS
def test_recordings(tmp_path: Path, binary: str, packed: bool) -> None:
    soundfile = pytest.importorskip("soundfile")
    from test_audio import sound

    expected = []
    (tmp_path / "a").mkdir()
    for i, (ext, rate, channels) in enumerate([("wav", 16000, 1), ("flac", 44100, 2), ("ogg", 22050, 2)]):
        file = tmp_path / "a" / f"{i}.{ext}"
        soundfile.write(file, sound(0.2 + 0.1 * i, rate, channels, i), rate)
        expected.append(soundfile.read(file, dtype="float32", always_2d=True))
    data = opened(f"audio:{tmp_path / 'a'}", packed, binary, tmp_path)
    for record, (wave, rate) in zip(data, expected, strict=True):
        assert record["audio"].dtype == np.float32
        assert record["audio"].shape == wave.shape
        assert np.abs(record["audio"] - wave).max() < 2e-4
        assert record.sample_rates == {"audio": rate}
    assert data[:1].sample_rates == {}  # they differ in the whole data
    assert stoker.open(f"audio:{tmp_path / 'a'}#rows=0:1").sample_rates == {"audio": 16000}


@pytest.mark.parametrize(("name", "codec"), [("x.mp4", "libx264"), ("x.avi", "mjpeg"), ("x.mkv", "libx264")])
@FORMS
def test_clips(tmp_path: Path, binary: str, packed: bool, name: str, codec: str) -> None:
    pytest.importorskip("av")
    import test_video

    if not test_video.has(codec):
        pytest.skip(f"PyAV has no {codec}")
    path = tmp_path / "v" / name
    test_video.write(path, codec=codec, pixels="yuvj420p" if codec == "mjpeg" else "yuv420p", g="12")
    want = test_video.frames(path)
    data = opened(f"{path}?frames=3&stride=4&step=5", packed, binary, tmp_path)
    assert data.fields["frames"].shape[0] == 3
    for i, record in enumerate(data):
        clip = record["frames"]
        assert clip.shape == (3, 64, 96, 3)
        if codec != "mjpeg":
            assert np.array_equal(clip, want[[5 * i, 5 * i + 4, 5 * i + 8]]), i
        else:
            assert np.abs(clip.astype(int) - want[[5 * i, 5 * i + 4, 5 * i + 8]]).mean() < 4
    assert np.array_equal(data.__getitems__([1, 0])[1]["frames"], data[0]["frames"])


@FORMS
def test_scans(tmp_path: Path, binary: str, packed: bool) -> None:
    nibabel = pytest.importorskip("nibabel")
    import test_volumes

    (tmp_path / "n").mkdir()
    for i in range(4):
        test_volumes.write(
            tmp_path / "n", f"{i}.nii" + (".gz" if i % 2 else ""), i, (9 + (not packed) * i, 8, 7), "uint16"
        )
    data = opened(tmp_path / "n", packed, binary, tmp_path)
    assert data.fields["volume"].shape == (7, 8, 9 if packed else -1)
    for i, path in enumerate(sorted((tmp_path / "n").iterdir())):
        assert np.array_equal(data[i]["volume"], np.asanyarray(nibabel.load(path).dataobj).T)
        assert data[i]["volume"].dtype == np.uint16


@FORMS
def test_rows_of_tables(tmp_path: Path, binary: str, packed: bool) -> None:
    pytest.importorskip("pandas")
    columns = test_formats.text_table()
    test_formats.write_json_lines(f"{tmp_path}/x.jsonl", columns)
    data = opened(tmp_path / "x.jsonl", packed, binary, tmp_path)
    assert list(data.fields) == list(columns)
    for i, record in enumerate(data):
        assert record["n"] == columns["n"][i]
        assert type(record["n"]) is int
        assert type(record["x"]) is float
        assert record["x"] == columns["x"][i] or (columns["x"][i] is None and np.isnan(record["x"]))
        assert record["text"] == columns["text"][i]
        assert np.array_equal(record["boxes"], np.reshape(columns["boxes"][i], (-1, 4)))
    train, val = data.split(0.8, 0.2)
    arrays = train.tensors({"in": ["n:normalize"], "y": ["ok"]})
    assert np.stack([r["in"] for r in arrays]).mean() == pytest.approx(0, abs=1e-5)
    assert val.tensors(of=arrays)[0]["in"].dtype == np.float32
    with pytest.raises(stoker.ConfigError, match="tensors needs columns"):
        data.tensors()


@FORMS
def test_json_and_arrays(tmp_path: Path, binary: str, packed: bool) -> None:
    with open(tmp_path / "x.jsonl", "w") as f:
        f.writelines(json.dumps({"meta": {"a": [i, None, "x"]}, "v": [1.5, i]}) + "\n" for i in range(5))
    data = opened(f"{tmp_path / 'x.jsonl'}?meta:json=meta&v", packed, binary, tmp_path)
    assert data[3]["meta"] == {"a": [3, None, "x"]}
    assert data[3]["v"].tolist() == [1.5, 3]


@FORMS
def test_documents(tmp_path: Path, binary: str, packed: bool) -> None:
    docs = test_tokens.documents(40)
    test_tokens.write_megatron(tmp_path / "corpus", docs, 8)
    data = opened(tmp_path / "corpus.idx", packed, binary, tmp_path)
    assert len(data) == 40
    for record, doc in zip(data, docs, strict=True):
        assert np.array_equal(record["tokens"], doc)
        assert record["tokens"].dtype == np.uint16
    sequences = data.sequences(length=32, fields=["position_ids"])
    stream = np.concatenate(docs)
    assert list(sequences.fields) == ["input", "target", "position_ids"]
    for i, record in enumerate(sequences):
        assert np.array_equal(record["input"], stream[32 * i : 32 * i + 32])
        assert np.array_equal(record["target"], stream[32 * i + 1 : 32 * i + 33])
    with sequences.loader(batch_size=4) as loader:
        rows = np.concatenate([batch["input"].copy() for batch in loader])
    assert np.array_equal(rows, np.stack([r["input"] for r in sequences]))
    assert len(data[:10].sequences(32)) < len(sequences)
    with pytest.raises(stoker.ConfigError, match=r"call where\(\) before sequences\(\)"):
        sequences.where("n < 2")
    with pytest.raises(stoker.ConfigError, match="a loader reads all sequences"):
        sequences[:2].loader()


def test_bytes(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.dat").write_bytes(b"\0" * i + b"x")
    data = stoker.open(f"files:{tmp_path}")
    (field,) = [f.name for f in data.fields.values() if f.kind == "bytes"]
    assert [r[field] for r in data] == [b"x", b"\0x", b"\0\0x"]


def test_data_that_can_only_be_read_in_order(photos: Path, tmp_path: Path) -> None:
    import tarfile

    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as tar:
        for i, path in enumerate(sorted((photos / "class-0").iterdir())[:5]):
            tar.add(path, f"{i}.jpg")
    data = stoker.open(tmp_path / "x.tar.gz")
    assert len(data) == 5
    assert [r["image"].shape for r in data] == [data[i]["image"].shape for i in range(5)]


def test_what_a_terminal_shows(photos: Path, tmp_path: Path) -> None:
    data = stoker.open(photos)
    lines = repr(data).splitlines()
    assert lines[0] == f"Dataset('{photos}', 203 records, folder)"
    assert lines[1:4] == [
        "  image  image uint8[?, ?, 3]",
        "  label  label, 4 classes",
        "  classes: class-0, class-1, class-2, class-3",
    ]
    assert lines[4].startswith("  [0] image: uint8[")
    assert lines[4].endswith("label: 0 (class-0)")
    assert "  then map(dict)" in repr(data.map(dict))
    assert "missing" in repr(stoker.open(tmp_path / "missing"))


def test_what_a_notebook_shows(photos: Path, coco: Path, tmp_path: Path) -> None:  # noqa: F811
    shown = stoker.open(photos)._repr_html_()
    assert "203 records, folder, 4 classes" in shown
    assert shown.count("data:image/png;base64,") == 4
    boxes = stoker.open(f"{coco}/annotations/instances_val2017.json?masks=instances")._repr_html_()
    assert "<rect" in boxes
    assert ">person</text>" in boxes or ">dog</text>" in boxes or ">bird</text>" in boxes
    with open(tmp_path / "x.jsonl", "w") as f:
        f.write(json.dumps({"text": "<script>alert(1)</script>"}) + "\n")
    texts = stoker.open(tmp_path / "x.jsonl")._repr_html_()
    assert "&lt;script&gt;" in texts
    assert "<script>" not in texts
    assert "missing" in stoker.open(tmp_path / "missing")._repr_html_()
    folder = tmp_path / "bad"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "0.jpg").write_bytes(next((photos / "class-0").iterdir()).read_bytes()[:900])
    assert "RecordError" in stoker.open(folder)._repr_html_()


def test_pictures_of_all_kinds(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    nibabel = pytest.importorskip("nibabel")
    (tmp_path / "a").mkdir()
    soundfile.write(tmp_path / "a" / "x.wav", np.sin(np.arange(8000) / 20), 8000)
    (tmp_path / "n").mkdir()
    nibabel.save(nibabel.Nifti1Image(np.ones((9, 8, 7), np.float32), np.eye(4)), tmp_path / "n" / "x.nii")
    sound = stoker.open(f"audio:{tmp_path / 'a'}")._repr_html_()
    assert "spectrogram" in sound
    assert "1.00 s, 8,000 Hz, 1 channel" in sound
    assert stoker.open(tmp_path / "n")._repr_html_().count("data:image/png") == 3


def test_secrets_are_not_shown(photos: Path) -> None:
    data = stoker.open(f"folder:{photos}?split=&aws_secret_access_key=abc123")
    assert "abc123" not in repr(data)
    assert "abc123" not in data._repr_html_()
