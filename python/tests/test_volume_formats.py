"""Volumes in .npy, TIFF and DICOM files, compared with NumPy's, tifffile's and pydicom's reading of them."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pydicom
import pytest
import tifffile
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate, generate_frames
from pydicom.pixels import apply_modality_lut
from pydicom.uid import (
    JPEG2000,
    UID,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLossless,
    JPEGLosslessSV1,
    RLELossless,
    generate_uid,
)

import stoker
from stoker import volume as V
from support import encoded


def noise(seed: int, shape: tuple[int, ...], kind: str) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if np.dtype(kind).kind == "f":
        return rng.normal(0, 100, shape).astype(kind)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    # Smooth enough for compression by runs of bytes to find some.
    return (rng.integers(max(low, -999), min(high, 999), shape) // 7 * 7).astype(kind)


def volumes(url: object, **options: Any) -> list[np.ndarray]:
    return [row for batch in stoker.Loader(str(url), batch_size=2, **options) for row in batch.volume.copy()]


@pytest.mark.parametrize("kind", ["uint8", "int16", "float32", "float64"])
def test_npy(tmp_path: Path, kind: str) -> None:
    want = [noise(i, (5, 6, 7), kind) for i in range(5)]
    for i, a in enumerate(want):
        np.save(tmp_path / f"{i}.npy", a)
    for url in (f"volumes:{tmp_path}", f"volumes:{tmp_path}/*.npy"):
        assert np.array_equal(volumes(url), want)
    patches = volumes(f"volumes:{tmp_path}?patch=2x3x7&stride=1x3x7")
    assert np.array_equal(patches[3], want[0][1:3, 3:6])


def test_channels(tmp_path: Path) -> None:
    a = noise(0, (2, 5, 6, 7), "float32")
    np.save(tmp_path / "a.npy", a)
    assert np.array_equal(volumes(f"volumes:{tmp_path}")[0], a)
    assert np.array_equal(volumes(f"volumes:{tmp_path}?patch=2x3x4")[-1], a[:, 3:, 3:, 3:])


TIFF: list[dict[str, Any]] = [
    {},
    {"bigtiff": True},
    {"byteorder": ">"},
    {"rowsperstrip": 5},
    {"tile": (16, 32)},
    {"compression": "zlib"},
    {"compression": "zlib", "predictor": True, "rowsperstrip": 7},
    {"compression": "lzw"},
    {"compression": "lzw", "predictor": True, "tile": (32, 16)},
    {"compression": "packbits"},
    {"compression": "zlib", "predictor": True, "byteorder": ">", "bigtiff": True},
    {"compression": "lzw", "byteorder": ">"},
]


@pytest.mark.parametrize("options", TIFF, ids=str)
@pytest.mark.parametrize("kind", ["uint8", "int16", "uint16", "uint32", "float32"])
def test_tiff(tmp_path: Path, options: dict[str, Any], kind: str) -> None:
    want = []
    for i in range(2):
        want.append(noise(i, (4, 37, 41), kind))
        tifffile.imwrite(tmp_path / f"{i}.tif", want[-1], photometric="minisblack", **options)
        assert np.array_equal(tifffile.imread(tmp_path / f"{i}.tif"), want[-1])
    assert np.array_equal(volumes(f"volumes:{tmp_path}"), want)
    patches = volumes(f"volumes:{tmp_path}?patch=2x30x20&stride=2x7x21")
    assert len(patches) == 2 * 2 * 2 * 2
    assert np.array_equal(patches[3], want[0][:2, 7:37, 21:41])


def test_tiff_of_others(tmp_path: Path) -> None:
    a = noise(1, (6, 20, 30), "uint16")
    tifffile.imwrite(tmp_path / "imagej.tif", a, imagej=True)
    tifffile.imwrite(tmp_path / "truncated.tif", a, truncate=True)
    pages = [Image.fromarray(p) for p in a]
    pages[0].save(tmp_path / "pillow.tif", save_all=True, append_images=pages[1:], compression="tiff_lzw")
    assert np.array_equal(volumes(f"volumes:{tmp_path}"), [a, a, a])


def test_tiff_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    for options, why in (
        ({"compression": "zstd", "photometric": "minisblack"}, r"compression is Zstandard \(50000\)"),
        ({"photometric": "rgb"}, "3 values for each voxel"),
    ):
        shape = (4, 16, 16, 3) if options["photometric"] == "rgb" else (4, 16, 16)
        tifffile.imwrite(path, np.zeros(shape, "u1"), **options)
        with pytest.raises(stoker.ConfigError, match=f"a.tif: page 1: .*{why}"):
            stoker.Loader(f"volumes:{tmp_path}", batch_size=1)


def jpeg(pixels: np.ndarray) -> bytes:
    return encoded(pixels, "JPEG", quality=85)


def packed(pixels: np.ndarray, syntax: UID, stored: int) -> bytes:
    """Return a frame as a transfer syntax has it."""
    if syntax == JPEGBaseline8Bit:
        return jpeg(pixels)
    codecs = pytest.importorskip("imagecodecs")
    plain = pixels.view(f"u{pixels.itemsize}") & (2**stored - 1)
    if syntax in (JPEGLossless, JPEGLosslessSV1):
        predictor = 1 if syntax == JPEGLosslessSV1 else 2 + stored % 6
        return bytes(codecs.jpeg8_encode(plain, lossless=True, predictor=predictor, bitspersample=stored))
    lossless = syntax == JPEG2000Lossless
    kind = pixels if stored == 8 * pixels.itemsize else plain
    return bytes(codecs.jpeg2k_encode(kind, level=0 if lossless else 40, reversible=lossless, codecformat="j2k"))


def series(folder: Path, seed: int, syntax: UID, signed: bool, stored: int, **more: Any) -> np.ndarray:
    """Write the slices of a series in any order, and return the voxels in that of their places."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    bits = 8 if stored <= 8 else 16
    low, high = (-(2 ** (stored - 1)), 2 ** (stored - 1)) if signed else (0, 2**stored)
    voxels = rng.integers(low, high, (6, 9, 12)) // 3 * 3
    voxels = voxels.clip(low, high - 1).astype(f"{'i' if signed else 'u'}{bits // 8}")
    uid = generate_uid()
    for k, z in enumerate(rng.permutation(6)):
        meta = FileMetaDataset()
        meta.TransferSyntaxUID = syntax
        meta.MediaStorageSOPClassUID = UID("1.2.840.10008.5.1.4.1.1.2")
        meta.MediaStorageSOPInstanceUID = generate_uid()
        d = FileDataset(None, {}, file_meta=meta, preamble=b"\0" * 128)
        d.SOPClassUID, d.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
        d.SeriesInstanceUID, d.PatientName, d.Modality = uid, "Some^Body", "CT"
        d.ReferencedStudySequence = [pydicom.Dataset(), pydicom.Dataset()]
        d.ReferencedStudySequence[0].ReferencedSOPInstanceUID = generate_uid()
        d.ImageOrientationPatient = [1, 0, 0, 0, 0, -1]
        d.ImagePositionPatient = [-20.5, -30 + 2.5 * float(z), 100]
        d.PixelSpacing, d.SliceThickness, d.InstanceNumber = [0.75, 0.5], 2.5, k + 1
        d.Rows, d.Columns, d.SamplesPerPixel, d.PhotometricInterpretation = 9, 12, 1, "MONOCHROME2"
        d.BitsAllocated, d.BitsStored, d.HighBit, d.PixelRepresentation = bits, stored, stored - 1, int(signed)
        for name, value in more.items():
            setattr(d, name, value)
        if syntax == RLELossless:
            d.compress(RLELossless, voxels[z], generate_instance_uid=False)
        elif syntax.is_compressed:
            frame = packed(voxels[z], syntax, stored)
            pieces = 3 if k == 2 else 1  # of a frame
            d.PixelData = encapsulate([frame], fragments_per_frame=pieces, has_bot=pieces == 1)
            d["PixelData"].VR = "OB"
        else:
            d.PixelData = voxels[z].tobytes()
            d["PixelData"].VR = "OW"
        d.save_as(folder / f"IM{k:04d}.dcm", enforce_file_format=True)
    return voxels


def placed(folder: Path) -> list[pydicom.Dataset]:
    """Return the slices as pydicom reads them, by their place along the normal."""
    found = [pydicom.dcmread(p) for p in sorted(folder.iterdir())]
    o = np.array(found[0].ImageOrientationPatient, float)
    normal = np.cross(o[:3], o[3:])
    return sorted(found, key=lambda d: float(np.dot(normal, np.array(d.ImagePositionPatient, float))))


@pytest.mark.parametrize("syntax", [ImplicitVRLittleEndian, ExplicitVRLittleEndian, RLELossless])
@pytest.mark.parametrize(("signed", "stored"), [(False, 8), (True, 8), (False, 12), (True, 16), (False, 16)])
@pytest.mark.parametrize("scaled", [False, True])
def test_dicom(tmp_path: Path, syntax: UID, signed: bool, stored: int, scaled: bool) -> None:
    for i in range(3):
        more = {"RescaleSlope": "1.5", "RescaleIntercept": str(-1024 + i)} if scaled else {}
        series(tmp_path / f"patient{i}" / "ct", i, syntax, signed, stored, **more)
    for batch in stoker.Loader(str(tmp_path), batch_size=3):
        for row in range(3):
            slices = placed(tmp_path / f"patient{row}" / "ct")
            want = np.stack([apply_modality_lut(d.pixel_array, d) if scaled else d.pixel_array for d in slices])
            assert batch.volume[row].dtype == (np.float32 if scaled else want.dtype)
            assert np.array_equal(batch.volume[row], want.astype("float32") if scaled else want)
            # NIfTI's directions: x to the right, y to the front.
            first, last = (np.array(slices[k].ImagePositionPatient, float) for k in (0, -1))
            affine = np.eye(4)
            affine[:3, 0], affine[:3, 1] = np.array([1, 0, 0]) * 0.5, np.array([0, 0, -1]) * 0.75
            affine[:3, 2], affine[:3, 3] = (last - first) / 5, first
            assert np.allclose(batch.affine[row], np.diag([-1, -1, 1, 1]) @ affine)


def test_dicom_as_jpeg(tmp_path: Path) -> None:
    for i in range(2):
        series(tmp_path / f"patient{i}" / "ct", i, JPEGBaseline8Bit, False, 8)
    for batch in stoker.Loader(str(tmp_path), batch_size=2):
        for row in range(2):
            slices = placed(tmp_path / f"patient{row}" / "ct")
            frames = [next(generate_frames(d.PixelData, number_of_frames=1)) for d in slices]
            want = np.stack([np.asarray(Image.open(io.BytesIO(f))) for f in frames])
            assert batch.volume[row].dtype == np.uint8 and np.array_equal(batch.volume[row], want)
    signed = tmp_path / "signed"
    series(signed, 0, JPEGBaseline8Bit, False, 8, PixelRepresentation=1)
    with pytest.raises(stoker.ConfigError, match=r"IM000\d.dcm: its voxels take 8 bits, signed: true"):
        stoker.Loader(str(signed), batch_size=1)


@pytest.mark.parametrize("syntax", [JPEGLossless, JPEGLosslessSV1, JPEG2000Lossless])
@pytest.mark.parametrize(("signed", "stored"), [(False, 8), (False, 12), (True, 16), (False, 16)])
def test_dicom_without_loss(tmp_path: Path, syntax: UID, signed: bool, stored: int) -> None:
    folder = tmp_path / "ct"
    want = series(folder, 7, syntax, signed, stored)
    got = stoker.Loader(str(folder), batch_size=1)
    one = next(iter(got)).volume[0]
    assert one.dtype == want.dtype and np.array_equal(one, want)
    moves = [V.RandSpatialCrop((2, 4, 5))]
    part = next(iter(stoker.Loader(str(folder), batch_size=1, transforms={"volume": moves}))).volume[0]
    assert any(
        np.array_equal(part, one[z : z + 2, y : y + 4, x : x + 5]) for z in range(5) for y in range(6) for x in range(8)
    )


def test_dicom_in_lossy_jpeg_2000(tmp_path: Path) -> None:
    codecs = pytest.importorskip("imagecodecs")
    want = series(tmp_path / "ct", 3, JPEG2000, False, 12)
    got = next(iter(stoker.Loader(str(tmp_path / "ct"), batch_size=1))).volume[0]
    same = np.stack([codecs.jpeg2k_decode(packed(v, JPEG2000, 12)) for v in want])
    assert np.array_equal(got, same) and not np.array_equal(got, want)


def test_a_missing_library_is_one_line(tmp_path: Path, binary: str) -> None:
    series(tmp_path / "ct", 3, JPEG2000Lossless, False, 12)
    env = {k: v for k, v in os.environ.items() if k != "STOKER_IMAGE_LIBRARIES"}
    done = subprocess.run(
        [binary, "pack", str(tmp_path / "ct"), str(tmp_path / "packed")], capture_output=True, text=True, env=env
    )
    if done.returncode == 0:
        pytest.skip("the system has libopenjp2")
    assert "JPEG 2000 needs libopenjp2, but libopenjp2 was not found: apt-get install libopenjp2-7" in done.stderr


def test_dicom_in_one_file(tmp_path: Path) -> None:
    from pydicom.data import get_testdata_file

    for name in ("CT_small.dcm", "MR_small.dcm", "MR_small_implicit.dcm", "MR_small_RLE.dcm", "emri_small.dcm"):
        try:
            path = get_testdata_file(name, download=False)
        except ValueError:
            path = None
        if path is None:
            continue
        d = pydicom.dcmread(path)
        want = d.pixel_array if d.pixel_array.ndim == 3 else d.pixel_array[None]
        want = apply_modality_lut(want, d)
        got = volumes(f"dicom:{path}")[0]
        assert np.array_equal(got, want.astype(got.dtype)), name


def test_dicom_that_cannot_be_read(tmp_path: Path) -> None:
    series(tmp_path / "a", 0, ExplicitVRLittleEndian, True, 16)
    one = tmp_path / "a" / "IM0003.dcm"
    good = one.read_bytes()
    one.write_bytes(good.replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2.2\0", 1))
    with pytest.raises(stoker.ConfigError, match=r"IM0003.dcm: its transfer syntax is 1.2.840.10008.1.2.2 \(Explicit"):
        stoker.Loader(str(tmp_path), batch_size=1)
    one.write_bytes(good[:-50])
    with pytest.raises(stoker.ConfigError, match=r"IM0003.dcm: its voxels take 216 bytes .*: the file is cut off"):
        stoker.Loader(str(tmp_path), batch_size=1)
    one.write_bytes((tmp_path / "a" / "IM0002.dcm").read_bytes())
    with pytest.raises(
        stoker.ConfigError, match=r"IM0002.dcm and .*IM0003.dcm of the same series lie at the same place"
    ):
        stoker.Loader(str(tmp_path), batch_size=1)


@pytest.mark.parametrize("end", [".nii", ".nii.gz", ".npy", ".tif"])
def test_pairs(tmp_path: Path, end: str) -> None:
    whole = {}
    for i in range(6):
        shape = (10 + i, 12, 14)
        image = np.arange(np.prod(shape), dtype="float32").reshape(shape) + 1e5 * i
        label = (image % 251).astype("uint8")
        for name, a in (("images", image), ("labels", label)):
            (tmp_path / name).mkdir(exist_ok=True)
            path = tmp_path / name / f"case{i}{end}"
            if "nii" in end:
                nibabel.save(nibabel.Nifti1Image(a.T, np.eye(4)), path)
            elif end == ".npy":
                np.save(path, a)
            else:
                tifffile.imwrite(path, a, compression="zlib")
        whole[i] = image
    (tmp_path / "images" / f"alone{end}").write_bytes((tmp_path / "images" / f"case0{end}").read_bytes())
    scheme = "volumes" if end == ".tif" else "pairs"
    url = f"{scheme}:{tmp_path}?image=images/*{end}&label=labels/*{end}"
    moves = [
        V.RandSpatialCrop((4, 5, 6)),
        V.RandFlip(0.5, 0),
        V.RandRotate90(0.5, 1, (0, 2)),
    ]
    moves.append(V.ResizeWithPadOrCrop((6, 5, 6)))
    loader = stoker.Loader(url, batch_size=3, shuffle=True, seed=7, transforms={"image": moves, "label": moves})
    assert loader.num_records == 6
    first = []
    for _ in range(2):
        for batch in loader:
            images, labels = batch.image, batch.label
            inside = images != 0
            assert np.array_equal((images % 251).astype("uint8")[inside], labels[inside])
            assert labels.dtype == np.uint8
            assert images.shape == (3, 6, 5, 6)
        first.append(images.copy())
    assert not np.array_equal(first[0], first[1])
    patches = stoker.Loader(url + "&patch=5x6x7", batch_size=4)
    for batch in patches:
        assert np.array_equal((batch.image % 251).astype("uint8"), batch.label)
