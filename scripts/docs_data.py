"""The data that the pages of docs/ speak of, small: make(FOLDER) writes it.

A page that needs other data adds it here. The names are those that the pages use.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import av
import h5py
import nibabel
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import soundfile
from PIL import Image

CHECKOUT = Path(__file__).resolve().parent.parent
BINARY = os.environ.get("STOKER_BINARY", str(CHECKOUT / "bin/stoker"))
CLASSES = ("cat", "dog", "horse", "zebra")


def stoker(*words: str) -> None:
    subprocess.run([BINARY, *words], check=True, capture_output=True)


def folders_of_photos(root: Path) -> list[bytes]:
    """Writes photos/ (one folder per class), imagenet/ (two splits) and train/ (a pack), and returns some JPEGs."""
    kind = "--count 640 --classes 4 --size 160x140 --tree --seed 5".split()
    stoker("gen", "images", str(root / "made"), *kind)
    photos = root / "photos"
    photos.mkdir()
    for folder, name in zip(sorted((root / "made").iterdir()), CLASSES, strict=False):
        folder.rename(photos / name)
    (root / "made").rmdir()
    for split in ("train", "val"):
        (root / "imagenet").mkdir(exist_ok=True)
        (root / "imagenet" / split).symlink_to(photos)
    stoker("pack", str(photos), str(root / "train"))
    (root / "backup").mkdir()
    (root / "backup/train").symlink_to(root / "train")
    return [f.read_bytes() for f in sorted(photos.rglob("*.jpg"))[:20]]


def coco(root: Path, split: str, pictures: list[bytes]) -> None:
    """Writes a part of COCO: images with one box and one outline each."""
    for name in (split, "annotations"):
        (root / name).mkdir(parents=True, exist_ok=True)
    images, annotations = [], []
    for i, picture in enumerate(pictures):
        (root / split / f"{i}.jpg").write_bytes(picture)
        width, height = Image.open(io.BytesIO(picture)).size
        images.append({"id": i, "file_name": f"{i}.jpg", "width": width, "height": height})
        outline = {"bbox": [10, 20, 60, 50], "segmentation": [[10, 20, 70, 20, 70, 70]], "area": 1500, "iscrowd": 0}
        annotations.append({"id": i, "image_id": i, "category_id": 1 + i % 2, **outline})
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    whole = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(whole))


def boxes(root: Path, pictures: list[bytes]) -> None:
    """Writes coco/, yolo/ and voc/ with the same images."""
    for split in ("train2017", "val2017"):
        coco(root / "coco", split, pictures)
    for split in ("train", "val"):
        for part in ("images", "labels"):
            (root / "yolo" / part / split).mkdir(parents=True)
        for i, picture in enumerate(pictures):
            (root / f"yolo/images/{split}/{i}.jpg").write_bytes(picture)
            (root / f"yolo/labels/{split}/{i}.txt").write_text(f"{i % 2} 0.5 0.5 0.25 0.4\n")
    (root / "yolo/data.yaml").write_text("path: .\ntrain: images/train\nval: images/val\nnames: [cat, dog]\n")
    for part in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (root / "voc" / part).mkdir(parents=True)
    for i, picture in enumerate(pictures):
        (root / f"voc/JPEGImages/{i}.jpg").write_bytes(picture)
        box = "<bndbox><xmin>11</xmin><ymin>21</ymin><xmax>70</xmax><ymax>70</ymax></bndbox>"
        width, height = Image.open(io.BytesIO(picture)).size
        name = ("cat", "dog")[i % 2]
        size = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
        about = f"<filename>{i}.jpg</filename>{size}"
        thing = f"<object><name>{name}</name><difficult>0</difficult><truncated>0</truncated>{box}</object>"
        (root / f"voc/Annotations/{i}.xml").write_text(f"<annotation>{about}{thing}</annotation>")
    names = "".join(f"{i}\n" for i in range(len(pictures)))
    (root / "voc/ImageSets/Main/train.txt").write_text(names)


def maps_and_volumes(root: Path, pictures: list[bytes]) -> None:
    """Writes street/ (images and masks), data/ (images, maps, volumes and labels) and scans/ (volumes)."""
    for name in ("street/images", "street/masks", "data/images", "data/flow", "data/depth", "data/labels", "scans"):
        (root / name).mkdir(parents=True)
    for i, picture in enumerate(pictures):
        (root / f"street/images/{i}.jpg").write_bytes(picture)
        width, height = Image.open(io.BytesIO(picture)).size
        mask = np.zeros((height, width), np.uint8)
        mask[20:70, 10 + i : 70 + i] = 1 + i % 3
        Image.fromarray(mask).save(root / f"street/masks/{i}.png")
    for i in range(8):
        Image.fromarray(np.full((330, 460, 3), i, np.uint8)).save(root / f"data/images/{i}.jpg")
        flow = np.zeros((330, 460, 2), "<f4")
        (root / f"data/flow/{i}.flo").write_bytes(b"PIEH" + np.array([460, 330], "<i4").tobytes() + flow.tobytes())
        Image.fromarray(np.full((330, 460), i, np.uint16)).save(root / f"data/depth/{i}.png")
    for i in range(4):
        volume = np.full((100, 100, 100), i, np.uint8)
        for path in (f"data/images/{i}.nii", f"data/labels/{i}.nii", f"scans/{i}.nii.gz"):
            nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), root / path)


def sounds(root: Path) -> None:
    """Writes sounds/: 80 recordings of a second at 8 kHz, in two classes."""
    for i in range(80):
        folder = root / "sounds" / ("no", "yes")[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / f"{i}.wav", np.sin(np.arange(8000) / (i % 9 + 2)), 8000)


def video(path: Path) -> None:
    """Writes a video of 80 frames, with a codec that the engine has in itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(path, "w") as file:
        stream = file.add_stream("mjpeg", rate=25)
        stream.width, stream.height, stream.pix_fmt = 128, 128, "yuvj420p"
        for i in range(80):
            picture = np.full((128, 128, 3), 3 * i, np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture)))
        file.mux(stream.encode())


def texts(root: Path) -> None:
    """Writes corpus.jsonl, tokenizer.json, documents of tokens, and tokens/ (a pack of windows)."""
    sentences = [
        "the engine reads records",
        "a batch has records",
        "the loader waits for a batch",
        "an epoch has batches",
    ]
    lines = [json.dumps({"id": i, "text": " ".join(sentences[(i + k) % 4] for k in range(60))}) for i in range(200)]
    (root / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    words = sorted({word for sentence in sentences for word in sentence.split()})
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    end = "<|endoftext|>"
    vocabulary = {word: i for i, word in enumerate([*words, "<unk>", end])}
    (root / "tokenizer.json").write_text(
        json.dumps(
            {
                "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
                "added_tokens": [plain | {"id": vocabulary[end], "content": end, "special": True}],
                "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": None,
                "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
            }
        )
    )  # fmt: skip
    np.save(root / "tokens.npy", np.arange(300 * 1024, dtype=np.uint16))
    (root / "train.bin").write_bytes(np.arange(64 * 1024, dtype=np.uint16).tobytes())
    stoker("pack", str(root / "tokens.npy"), str(root / "tokens"), "--window", "1024")
    (root / "docs.jsonl").write_text("".join(f'{{"tokens": {list(range(i % 9))}}}\n' for i in range(40)))


def tables(root: Path, pictures: list[bytes]) -> None:
    """Writes tables, with and without paths of images and videos."""
    (root / "train.csv").write_text("x,name\n" + "1.5,a\n" * 20)
    (root / "clips.csv").write_text("video,t0,t1,class\n" + "videos/run/0.avi,0.2,1.0,dog\n" * 20)
    people = "".join(
        f"{31 + i % 40},{40 - i % 5},{('Oslo', 'Bern')[i % 2]},{('high', 'low')[i % 3 == 0]}\n" for i in range(400)
    )
    (root / "people.csv").write_text("age,hours,city,income\n,35,Bern,low\n" + people)
    (root / "a.jpg").write_bytes(pictures[0])
    (root / "list.csv").write_text("path,class,boxes\n" + 'a.jpg,dog,"[[1, 2, 3, 4]]"\n' * 20)
    (root / "list.jsonl").write_text('{"class": "dog", "size": 3}\n' * 20)
    rows = [{"image": {"bytes": p, "path": f"{i}.jpg"}, "label": i % 4} for i, p in enumerate(pictures)]
    meta = {"info": {"features": {
        "image": {"_type": "Image"}, "label": {"names": list(CLASSES), "_type": "ClassLabel"}}}}  # fmt: skip
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"huggingface": json.dumps(meta)})
    (root / "food101/data").mkdir(parents=True)
    for split in ("train", "validation"):
        pyarrow.parquet.write_table(table, root / f"food101/data/{split}-00000-of-00001.parquet")
    (root / "saved").mkdir()
    with pa.OSFile(str(root / "saved/data.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    numbers = {"age": [31.0, 42.0] * 200, "income": [0, 1] * 200}
    pyarrow.parquet.write_table(pa.table(numbers), root / "people.parquet")


def arrays(root: Path) -> None:
    """Writes arrays/ (.npy), cells.h5, data.h5 and data.zarr."""
    (root / "arrays").mkdir()
    np.save(root / "arrays/x.npy", np.arange(400 * 16, dtype=np.float32).reshape(400, 16))
    np.save(root / "arrays/y.npy", np.arange(400) % 10)
    (root / "data.zarr/train").mkdir(parents=True)
    (root / "data.zarr/.zgroup").write_text('{"zarr_format": 2}')
    for name, shape, dtype in (("x", [300, 8, 8, 3], "|u1"), ("y", [300], "<i8")):  # without a chunk, all is 0
        about = {"zarr_format": 2, "shape": shape, "chunks": shape, "dtype": dtype, "compressor": None}
        (root / "data.zarr/train" / name).mkdir()
        (root / "data.zarr/train" / name / ".zarray").write_text(json.dumps(about))
    with h5py.File(root / "data.h5", "w") as f:
        f["train/x"], f["train/y"] = np.zeros((300, 8, 8, 3), np.uint8), np.arange(300) % 10
    with h5py.File(root / "cells.h5", "w") as f:
        f["X/data"], f["X/indices"], f["X/indptr"] = np.zeros(600), np.arange(600), np.arange(301) * 2
        f["obs/cell_type/codes"] = np.arange(300) % 10


def shards(root: Path, pictures: list[bytes]) -> None:
    """Writes shards/: 128 tar files in WebDataset's layout, three samples each."""
    (root / "shards").mkdir()
    for i in range(128):
        with tarfile.open(root / f"shards/train-{i:04}.tar", "w") as shard:
            for k in range(3):
                for name, data in ((f"{k}.jpg", pictures[(i + k) % len(pictures)]), (f"{k}.cls", b"%d" % (k % 4))):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    shard.addfile(member, io.BytesIO(data))


def other_loaders(root: Path) -> Iterator[tuple[str, Path]]:
    """Yields names of data of other loaders, and the files of the engine's tests that they are."""
    source = CHECKOUT / "internal/source"
    yield "train-records/x.tfrecord", source / "tfrecordsource/testdata/examples.tfrecord"
    yield "mds", source / "mdssource/testdata/all"
    yield "db.lmdb", source / "lmdbsource/testdata/plain.mdb"
    yield "pusht", source / "lerobotsource/testdata/v3"
    yield "litdata", source / "litdatasource/testdata/tokens"


def archive_of_arrays(root: Path) -> None:
    """Writes mnist.npz, with the names that Keras gives its arrays."""
    names = {}
    for part, count in (("train", 320), ("test", 64)):
        names |= {f"x_{part}": np.zeros((count, 28, 28), np.uint8), f"y_{part}": np.arange(count, dtype=np.uint8) % 10}
    np.savez(root / "mnist.npz", **names)


def make(root: Path) -> Path:
    """Writes everything into a folder that does not exist yet."""
    root.mkdir(parents=True)
    pictures = folders_of_photos(root)
    boxes(root, pictures)
    maps_and_volumes(root, pictures)
    sounds(root)
    for i in range(8):
        video(root / "videos" / ("run", "walk")[i % 2] / f"{i}.avi")
    texts(root)
    tables(root, pictures)
    arrays(root)
    archive_of_arrays(root)
    shards(root, pictures)
    for name, target in other_loaders(root):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).symlink_to(target)
    with gzip.open(CHECKOUT / "internal/source/betonsource/testdata/all.beton.gz") as f:
        (root / "train.beton").write_bytes(f.read())
    (root / "bytes").mkdir()
    for i in range(20):
        (root / f"bytes/{i}.bin").write_bytes(bytes(range(i + 1)))
    return root
