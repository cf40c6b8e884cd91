"""The arms of the benchmark, the data that each reads, and the settings that are tried before the measurement.

Classes are never mixed in one table:
  bytes     the JPEG files' own bytes, as files or inside a container
  lossless  repacked so that the pixels stay the same, bit for bit
  lossy     re-encoded (FFCV's writer: quality 90); the other loader gets the same smaller JPEGs
  raw       decoded pixels
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Arm:
    name: str
    title: str
    module: str
    # The environment under bench/work/venv; "project" is the project's own .venv.
    env: str
    # The path of its data, below bench/work, with {set} for the data set.
    reads: str
    # The pack that must be made for it: kind, and the environment of its writer. "" reads the files.
    pack: str = ""
    classes: tuple[str, ...] = ("bytes",)
    workers: int = 2
    # Settings that `tune` tries instead of workers.
    tries: tuple[int, ...] = ()
    decode: str = ""
    geometry: str = "random"
    options: tuple[str, ...] = ()
    batch: int = 256
    layout: str = "NHWC"
    # Shown under the table.
    note: str = ""
    # Arms of the short version (QUICK=1).
    quick: bool = False
    # A rival's figure counts without this gate if its design does not promise the property. Stoker's never does.
    ours: bool = False
    # False for different work than the rest of the table: shown next to it and never in a ratio.
    comparable: bool = True
    # The reason why this arm cannot exist yet, reported instead of its figure.
    missing: str = ""

    def folder(self, data_set: str) -> str:
        return self.reads.format(set=data_set)


def torch(decode: str, tries: tuple[int, ...], workers: int, env: str = "project", title: str = "") -> Arm:
    return Arm(
        name=f"torch-{decode}",
        title=title or f"torch DataLoader, {decode}",
        module="torch_arm",
        env=env,
        reads="data/{set}",
        workers=workers,
        tries=tries,
        decode=decode,
        layout="NHWC" if decode in ("simplejpeg", "cv2") else "NCHW",
    )


FFCV = Arm(
    "ffcv-same", "FFCV, same JPEG bytes", "ffcv_arm", "ffcv", "packs/{set}/ffcv_same.beton", "ffcv_same",
    classes=("bytes", "lossless"), tries=(1, 2),
    note="FFCV's writer always re-encodes; here it stores the original JPEGs and its reader is untouched. It decodes"
    " with libjpeg-turbo's fast, less exact IDCT. Its first batch waits for Numba to compile, at every start.",
)  # fmt: skip
STOKER = Arm(
    "stoker-keep", "**Stoker**, pack of the same bytes", "stoker_arm", "project", "packs/{set}/stoker-keep",
    "stoker-keep", workers=0, quick=True, ours=True,
)  # fmt: skip

# JPEG -> RandomResizedCrop 224 + flip -> u8 batch of 256, on `photos` and on `gen`.
JPEG = [
    replace(torch("pillow", (0, 1, 2, 3, 4), 2, title="torch DataLoader, Pillow"), quick=True),
    replace(torch("torchvision", (0, 1, 2, 3, 4), 2, title="torch DataLoader, torchvision decoder"), quick=True),
    torch("simplejpeg", (2, 3), 3, env="side", title="torch DataLoader, simplejpeg + OpenCV"),
    torch("torchcodec", (2, 3), 2, env="torchcodec", title="torch DataLoader, TorchCodec's decoder"),
    FFCV,
    replace(
        FFCV, name="ffcv-q90", title="FFCV, its own q90 JPEGs", reads="packs/{set}/ffcv_q90.beton", pack="ffcv_q90",
        classes=("lossy",), note="",
    ),
    Arm("dali", "DALI, CPU", "dali_arm", "dali", "data/{set}", workers=3, tries=(1, 2, 3)),
    Arm(
        "webdataset", "WebDataset, simplejpeg + OpenCV", "webdataset_arm", "side", "packs/{set}/wds", "wds",
        decode="simplejpeg", tries=(2, 3),
    ),
    Arm(
        "litdata", "LitData, torchvision decoder", "litdata_arm", "side", "packs/{set}/litdata", "litdata",
        decode="torchvision", tries=(2, 3), layout="NCHW",
    ),
    Arm(
        "mds", "MosaicML Streaming, torchvision decoder", "mds_arm", "mds", "packs/{set}/mds", "mds",
        decode="torchvision", tries=(2, 3), layout="NCHW",
    ),
    Arm("spdl-ffmpeg", "SPDL, its own decoder", "spdl_arm", "spdl", "data/{set}", decode="ffmpeg", tries=(2, 3)),
    Arm(
        "spdl-torch", "SPDL's loader for PyTorch datasets, Pillow", "torch_arm", "spdl", "data/{set}", decode="pillow",
        tries=(1, 2, 3), options=("spdl=1",), layout="NCHW",
    ),
    Arm("spdl-cv2", "SPDL, OpenCV", "spdl_arm", "spdl", "data/{set}", decode="cv2", workers=4, tries=(2, 4)),
    Arm("grain", "Grain, OpenCV", "grain_arm", "grain", "data/{set}", decode="cv2", workers=3, tries=(2, 3, 8)),
    Arm(
        "tf-antialias", "tf.data, antialiased resize", "tf_arm", "tf", "data/{set}", workers=0, tries=(0, 2),
        options=("antialias=1",),
    ),
    Arm(
        "tf", "tf.data, resize without antialias", "tf_arm", "tf", "data/{set}", workers=0, tries=(0, 2),
        note="Less work than the others: TensorFlow's default resize does not antialias, so its pixels differ.",
    ),
    Arm(
        "datago", "datago (centre crop, not RandomResizedCrop)", "datago_arm", "datago", "data/{set}", comparable=False,
        note="datago has no RandomResizedCrop: it crops and resizes the centre. Other work, so not in any ratio.",
    ),
    Arm(
        "turboloader", "TurboLoader (float32)", "turboloader_arm", "turboloader", "packs/{set}/turbo.tar", "turbo_tar",
        tries=(1, 2), comparable=False,
        note="TurboLoader's fast path gives float32 only, four times the bytes of the others. Other work, so not in any"
        " ratio.",
    ),
    replace(STOKER, name="stoker-folder", title="**Stoker**, folder of files", reads="data/{set}", pack=""),
    STOKER,
    replace(
        STOKER, name="stoker-dct", title="**Stoker**, dct pack", reads="packs/{set}/stoker-dct", pack="stoker-dct",
        classes=("lossless",),
    ),
    replace(
        STOKER, name="stoker-dct-q90", title="**Stoker**, dct pack of FFCV's q90 JPEGs",
        reads="packs/{set}-q90/stoker-dct", pack="stoker-dct-q90", classes=("lossy",), quick=False,
    ),
    replace(
        STOKER, name="stoker-keep-q90", title="**Stoker**, pack of FFCV's q90 JPEGs",
        reads="packs/{set}-q90/stoker-keep", pack="stoker-keep-q90", classes=("lossy",), quick=False,
    ),
]  # fmt: skip

# Raw 256x256x3 records to the trainer.
RAW = [
    Arm(
        "raw-ffcv", "FFCV, raw", "ffcv_arm", "ffcv", "packs/raw256/ffcv_raw.beton", "ffcv_raw", ("raw",), tries=(1, 2),
        geometry="none",
    ),
    Arm(
        "raw-memmap-batches", "numpy.memmap, one fancy index per batch", "memmap_arm", "project",
        "data/raw256/records.npy", classes=("raw",), workers=0, geometry="none", options=("how=batches",),
    ),
    Arm(
        "raw-memmap", "numpy.memmap + torch DataLoader", "memmap_arm", "project", "data/raw256/records.npy",
        classes=("raw",), tries=(0, 1, 2), geometry="none", options=("how=records",),
    ),
    Arm(
        "raw-grain", "Grain over numpy.memmap", "grain_arm", "grain", "data/raw256/records.npy", classes=("raw",),
        tries=(0, 2), geometry="none",
    ),
    Arm(
        "raw-stoker", "**Stoker**, raw pack", "stoker_arm", "project", "packs/raw256/stoker-raw", "stoker-raw",
        ("raw",), workers=0, geometry="none", ours=True,
    ),
]  # fmt: skip


def _tiny(prefix: str, data_set: str, batch: int) -> list[Arm]:
    records = f"data/{data_set}/records.npy"
    common = {"classes": ("raw",), "geometry": "none", "batch": batch}
    arms = [
        Arm(f"{prefix}-memmap-batches", "numpy.memmap, one fancy index per batch", "memmap_arm", "project", records,
            workers=0, options=("how=batches",), **common),
        Arm(f"{prefix}-memmap", "numpy.memmap + torch DataLoader", "memmap_arm", "project", records, tries=(0, 1, 2),
            options=("how=records",), **common),
        Arm(f"{prefix}-mds", "MosaicML Streaming", "mds_arm", "mds", f"packs/{data_set}/mds", "mds", tries=(1, 2),
            **common),
        Arm(f"{prefix}-litdata", "LitData", "litdata_arm", "side", f"packs/{data_set}/litdata", "litdata",
            tries=(1, 2), **common),
        Arm(f"{prefix}-grain", "Grain over numpy.memmap", "grain_arm", "grain", records, tries=(0, 2), **common),
        Arm(f"{prefix}-tf", "tf.data, array in memory", "tf_arm", "tf", records, workers=0, **common),
    ]  # fmt: skip
    return arms


# Tiny records: the cost of a loader without decoding.
TINY = [
    Arm(
        "tiny-ffcv", "FFCV, raw", "ffcv_arm", "ffcv", "packs/cifar/ffcv_raw.beton", "ffcv_raw", ("raw",), tries=(1, 2),
        geometry="none",
    ),
    Arm(
        "tiny-webdataset", "WebDataset", "webdataset_arm", "side", "packs/cifar/wds", "wds", ("raw",), tries=(1, 2),
        geometry="none",
    ),
    *_tiny("tiny", "cifar", 256),
    Arm(
        "tiny-stoker", "**Stoker**, raw pack", "stoker_arm", "project", "packs/cifar/stoker-raw", "stoker-raw",
        ("raw",), workers=0, geometry="none", ours=True,
    ),
]  # fmt: skip

TOKENS = [
    Arm(
        "tokens-ffcv", "FFCV, NDArrayField", "ffcv_arm", "ffcv", "packs/tokens/ffcv_array.beton", "ffcv_array",
        ("raw",), tries=(1, 2), geometry="none", batch=64,
    ),
    Arm(
        "tokens-webdataset", "WebDataset", "webdataset_arm", "side", "packs/tokens/wds", "wds", ("raw",), tries=(1, 2),
        geometry="none", batch=64, options=("dtype=uint16",),
    ),
    *_tiny("tokens", "tokens", 64),
    Arm(
        "tokens-stoker-npy", "**Stoker**, the .npy file", "stoker_arm", "project", "data/tokens/records.npy",
        classes=("raw",), workers=0, geometry="none", batch=64, ours=True,
    ),
    Arm(
        "tokens-stoker", "**Stoker**, pack", "stoker_arm", "project", "packs/tokens/stoker-rows", "stoker-rows",
        ("raw",), workers=0, geometry="none", batch=64, ours=True,
    ),
]  # fmt: skip

# The rivals that the bars name, for the second JPEG data set.
NAMED = ("torch-pillow", "torch-torchvision", "torch-simplejpeg", "ffcv-same", "dali", "grain", "tf-antialias", "tf")


@dataclass(frozen=True)
class Suite:
    name: str
    title: str
    data_set: str
    arms: list[Arm]
    # The name of one example, and the size of an output image.
    unit: str = "img/s"
    size: int = 224


SUITES = {
    s.name: s
    for s in (
        Suite("photos", "Real photographs", "photos", JPEG),
        Suite(
            "gen",
            "Generated images",
            "gen",
            [a for a in JPEG if a.name in NAMED or (a.ours and "lossy" not in a.classes)],
        ),
        Suite("raw", "Raw 256x256 records", "raw256", RAW, "records/s", 256),
        Suite("tiny", "Tiny records: CIFAR 32x32, raw, batch 256", "cifar", TINY, "records/s", 32),
        Suite("tokens", "Tiny records: 2 KB of tokens, batch 64", "tokens", TOKENS, "records/s", 0),
    )
}

# Batches of one tiny record in memory: only the hand-off costs time.
FLOW = [
    Arm(
        "flow-torch", "torch DataLoader, a dataset that does nothing", "constant_arm", "project", "data/{set}",
        classes=("raw",), workers=2, geometry="none", batch=1,
    ),
    Arm(
        "flow-stoker", "**Stoker**, raw pack of 32x32 pixels", "stoker_arm", "project", "packs/{set}/stoker-raw-32",
        "stoker-raw-32", classes=("raw",), workers=0, geometry="none", batch=1, ours=True,
    ),
]  # fmt: skip

# Taking a batch that is ready, from the data set's own arms.
HANDOFF = {
    "raw": ("raw-memmap", "raw-ffcv", "raw-grain", "raw-stoker"),
    "tiny": (
        "tiny-memmap",
        "tiny-ffcv",
        "tiny-mds",
        "tiny-litdata",
        "tiny-webdataset",
        "tiny-grain",
        "tiny-tf",
        "tiny-stoker",
    ),
    "tokens": ("tokens-memmap", "tokens-ffcv", "tokens-mds", "tokens-grain", "tokens-tf", "tokens-stoker"),
    "photos": ("torch-torchvision", "ffcv-same", "dali", "tf", "stoker-keep", "stoker-dct"),
    "gen": ("torch-torchvision", "stoker-keep"),
}

# The trainer's own Python while the loader delivers at a fixed pace.
FOREGROUND = ("torch-torchvision", "ffcv-same", "dali", "grain", "spdl-cv2", "tf", "stoker-keep", "stoker-dct")

# Memory against workers or engine threads.
MEMORY = {"torch-pillow": (2, 4, 8), "torch-torchvision": (2, 4, 8), "stoker-keep": (2, 4, 8), "stoker-dct": (2, 4, 8)}

# Writers on one core: label, kind, environment.
PACKING = [
    ("WebDataset", "wds", "side"),
    ("MosaicML Streaming", "mds", "mds"),
    ("LitData", "litdata", "side"),
    ("FFCV, same JPEG bytes", "ffcv_same", "ffcv"),
    ("FFCV, its own q90 re-encode", "ffcv_q90", "ffcv"),
    ("**Stoker** keep", "stoker-keep", ""),
    ("**Stoker** dct", "stoker-dct", ""),
]
