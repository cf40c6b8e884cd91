"""``inspect``, ``verify`` and ``convert``: the commands of ``stoker`` as functions."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from . import _options
from ._ask import built, run
from ._dataset import Dataset
from ._errors import ConfigError, SkippedRecords, public, warn

_LISTED = 5


@dataclasses.dataclass(frozen=True)
class InspectResult:
    """The result of ``stoker.inspect``.

    Attributes:
        source: its path or URL.
        format: ``"folder"``, ``"pack"``, ``"parquet"``, ...
        records: the number of records.
        bytes: the size of its files.
        fields: ``kind``, ``dtype``, ``shape``, ``classes``, ... of each field; for packs also ``stats``.
        fingerprint: a text that differs if the records differ, as far as that can be told cheaply.
        random_access: whether records can be read in any order.
        code: a line that loads it.
        raw: the whole JSON of ``stoker inspect --json``.
    """

    source: str
    format: str
    records: int
    bytes: int
    fields: Mapping[str, Mapping[str, Any]]
    fingerprint: str
    random_access: bool
    code: str
    raw: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A damaged part of a pack.

    Attributes:
        shard: the file.
        chunk: its chunk, -1 for all of it.
        first_record, last_record: the records concerned, -1 for all of the shard.
        reason: the reason in one line.
        path: the file that the record was made from, if only one record is concerned.
        intact: the checksum is right: the value is unchanged since packing, and cannot be decoded.
    """

    shard: str
    chunk: int
    first_record: int
    last_record: int
    reason: str
    path: str = ""
    intact: bool = False


@dataclasses.dataclass(frozen=True)
class VerifyResult:
    """The result of ``stoker.verify``. It is true if the pack is whole.

    Attributes:
        pack: its path.
        whole: nothing is damaged.
        problems: the damaged parts.
        unsupported, too_large: intact records that cannot be decoded here, because a decoder or memory is missing.
        records, chunks, bytes: the amount read.
        fingerprint: the fingerprint of the pack.
        raw: the whole JSON of ``stoker verify --json``.
    """

    pack: str
    whole: bool
    problems: tuple[Problem, ...]
    unsupported: tuple[Problem, ...]
    too_large: tuple[Problem, ...]
    records: int
    chunks: int
    bytes: int
    fingerprint: str
    raw: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.whole


@dataclasses.dataclass(frozen=True)
class ConvertResult:
    """The result of ``stoker.convert``.

    Attributes:
        path: its path.
        format: ``"parquet"``, ``"tar"``, ``"pack"``, ...
        records, files, bytes: the amount written.
        fields: names of the fields.
        skipped: inputs that could not be read: pairs of an input and the reason.
        raw: the whole JSON of ``stoker convert --json``.
    """

    path: str
    format: str
    records: int
    files: int
    bytes: int
    fields: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    raw: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)


Source = str | os.PathLike[str] | Dataset


def url_of(source: Source) -> str:
    """Return the URL of data; a dataset has one if it has only views."""
    if not isinstance(source, Dataset):
        return _options.source_url(source)
    if source._mixture is not None:
        raise ConfigError("a mixture is for loaders: give its datasets one by one")
    if source._maps or source._sequence is not None:
        what = "a function (map)" if source._maps else "sequences"
        raise ConfigError(f"the dataset has {what}, which the engine does not run here: give the dataset before that")
    return source._url()


@public
def inspect(source: Source) -> InspectResult:
    """Say what data is: its format, records and fields, and the line that loads it. Records are not read.

    Args:
        source: a path or URL of a pack or of other data, or a dataset.

    Raises:
        StokerError: there is no such data, or it is not known what it is.
    """
    url = url_of(source)
    raw = run(["inspect", "--json", "--", url])
    return built(
        InspectResult,
        raw,
        source=url,
        format="pack" if "pack" in raw else raw["format"],
        fields={f["name"]: {k: v for k, v in f.items() if k != "name"} for f in raw["fields"]},
        code=raw["loader"]["code"],
        raw=raw,
    )


@public
def verify(
    pack: str | os.PathLike[str], *, decode: bool = False, threads: int | None = None, memory: int | str | None = None
) -> VerifyResult:
    """Read all of a pack and compare every checksum. Damage is in the result, which is then false.

    Args:
        pack: path or URL of a pack.
        decode: also decode every image, mask, recording and clip.
        threads: chunks checked at the same time. Default: one per core.
        memory: what decoding may take, in bytes or as ``"2GB"``. Default: a quarter of the free memory.

    Raises:
        StokerError: there is no pack.
    """
    arguments = ["verify", "--json", *(["--decode"] if decode else [])]
    if threads is not None:
        arguments.append(f"--threads={_options.whole('threads', threads, 1, 1024)}")
    if memory is not None:
        arguments.append(f"--memory={_options.size('memory', memory)}B")
    raw = run([*arguments, "--", _options.source_url(pack)], also=(3, 4))
    found = ("problems", "unsupported", "too_large")
    lists = {name: tuple(built(Problem, p) for p in raw[name] or ()) for name in found}
    return built(VerifyResult, raw, raw=raw, **lists)


@public
def convert(
    source: Source,
    out: str | os.PathLike[str],
    *,
    to: str | None = None,
    images: str | None = None,
    resize: int | str | None = None,
    compress: str | None = None,
    shard_size: int | str | None = None,
    threads: int | None = None,
    memory: int | str | None = None,
) -> ConvertResult:
    """Write data in another format: ``stoker.convert("train/", "train.parquet")``.

    ``out`` has all records or does not exist, and nothing that exists is written over. Records that cannot be read
    are left out, with a ``SkippedRecords`` warning.

    Args:
        source: a path or URL, or a dataset: its views choose records and fields.
        out: a path. Its extension or ``to`` chooses the format; without them images go to a folder per class.
        to: ``"tar"``, ``"tfrecord"``, ``"parquet"``, ``"arrow"``, ``"mds"``, ``"lmdb"``, ``"hdf5"``, ``"npy"``,
            ``"npz"``, ``"jsonl"``, ``"csv"``, ``"tsv"``, ``"bin"``, ``"folder"`` or ``"pack"``.
        images: of a pack that is written again: ``"keep"``, ``"dct"`` or ``"raw"``.
        resize: with ``images="raw"``, the shorter side in pixels, or ``"WxH"``.
        compress: ``"none"`` or one of the format's own names.
        shard_size: size of the files, in bytes or as ``"256MiB"``.
        threads: default: one per core.
        memory: what images may take, in bytes or as ``"2GB"``. Default: a quarter of the free memory.

    Raises:
        ConfigError: the arguments do not fit each other.
        StokerError: the data cannot be read, or a field has no place in the format.
    """
    options = {
        "to": to,
        "images": images,
        "resize": resize,
        "compress": compress,
        "shard-size": None if shard_size is None else f"{_options.size('shard_size', shard_size)}B",
        "threads": None if threads is None else _options.whole("threads", threads, 0, 1024),
        "memory": None if memory is None else f"{_options.size('memory', memory)}B",
    }
    arguments = [f"--{name}={value}" for name, value in options.items() if value is not None]
    raw = run(["convert", "--json", *arguments, "--", url_of(source), os.fspath(out)], also=(3,))
    left = [{k.lower(): v for k, v in s.items()} for s in raw.get("skipped") or ()]
    skipped = tuple((s["path"], s["reason"]) for s in left)
    if skipped:
        listed = "; ".join(f"{path}: {reason}" for path, reason in skipped[:_LISTED])
        warn(f"{raw.get('bad', len(skipped)):,} of the records were left out: {listed}", SkippedRecords)
    fields = [f if isinstance(f, str) else f["name"] for f in raw["fields"]]
    return built(
        ConvertResult,
        raw,
        path=raw.get("path", raw.get("pack", os.fspath(out))),
        format=raw.get("format", "pack"),
        files=raw.get("files", raw.get("shards", 0)),
        fields=tuple(fields),
        skipped=skipped,
        raw=raw,
    )
