"""DICOM series of CT: folders of slices that are stacked by their position and rescaled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import Format
from .torch_side import batches

COUNT, SLICES, SIDE = 16, 64, 256


def make(folder: Path) -> None:
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import UID, ExplicitVRLittleEndian, generate_uid

    rng = np.random.default_rng(0)
    for i in range(COUNT):
        (folder / f"{i:02d}").mkdir()
        series = generate_uid()
        for z in range(SLICES):
            meta = FileMetaDataset()
            meta.TransferSyntaxUID = ExplicitVRLittleEndian
            meta.MediaStorageSOPClassUID = UID("1.2.840.10008.5.1.4.1.1.2")
            meta.MediaStorageSOPInstanceUID = generate_uid()
            d = FileDataset(None, {}, file_meta=meta, preamble=b"\0" * 128)
            d.SOPClassUID, d.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
            d.SeriesInstanceUID, d.InstanceNumber, d.Modality = series, z + 1, "CT"
            d.ImageOrientationPatient, d.ImagePositionPatient = [1, 0, 0, 0, 1, 0], [0, 0, -2.5 * z]
            d.PixelSpacing, d.RescaleSlope, d.RescaleIntercept = [0.7, 0.7], 1, -1024
            d.Rows, d.Columns, d.SamplesPerPixel, d.PhotometricInterpretation = SIDE, SIDE, 1, "MONOCHROME2"
            d.BitsAllocated, d.BitsStored, d.HighBit, d.PixelRepresentation = 16, 12, 11, 0
            d.PixelData = rng.integers(0, 4096, (SIDE, SIDE), dtype=np.uint16).tobytes()
            d["PixelData"].VR = "OW"
            d.save_as(folder / f"{i:02d}" / f"{z:04d}.dcm", enforce_file_format=True)


class Series:
    """The slices of each folder, in the order of their positions."""

    def __init__(self, folder: Path) -> None:
        self.folders = sorted(p for p in folder.iterdir() if p.is_dir())

    def __len__(self) -> int:
        return len(self.folders)

    def __getitem__(self, n: int) -> Any:
        import pydicom

        slices = sorted(
            (pydicom.dcmread(p) for p in self.folders[n].iterdir()), key=lambda d: float(d.ImagePositionPatient[2])
        )
        return np.stack(
            [d.pixel_array.astype(np.float32) * float(d.RescaleSlope) + float(d.RescaleIntercept) for d in slices]
        )


def reference(folder: Path, batch: int) -> Iterator[int]:
    return batches(Series(folder), batch)


FORMAT = Format(
    name="dicom",
    library="pydicom in a DataLoader",
    make=make,
    url=str,
    reference=reference,
    loader={"shuffle": True},
    what=f"{COUNT} series of {SLICES} slices of {SIDE} x {SIDE}, 12 bits, as float32",
    batch=4,
)
