"""Records of Python: the kind of each value, and its bytes in the engine's form."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ._errors import ConfigError, nearest
from ._surface import DTYPES, KINDS

# The marks that pictures and sounds begin with, as the engine knows them too.
_IMAGES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM", b"II*\x00", b"MM\x00*")
_SOUNDS = (b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")
_NUMBERS = ("label", "int", "float")
# Fields of whole numbers with these names are class numbers.
_LABELS = ("label", "labels", "target", "class", "cls", "y")
_MASKS = ("mask", "segm")
_RAW = 1 << 63  # marks pixels, see internal/source/spoolsource
_ELEMENTS = tuple(name for name in DTYPES if name != "bfloat16")


@dataclasses.dataclass
class Spec:
    """The type of a field in all records: its kind, and for arrays the type and shape of their elements."""

    name: str
    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    classes: list[str] | None = None

    def described(self) -> dict[str, Any]:
        """Return it as internal/source/spoolsource reads it."""
        out: dict[str, Any] = {"name": utf8(self.name), "kind": self.kind}
        if self.dtype:
            out |= {"dtype": self.dtype, "shape": list(self.shape)}
        if self.classes is not None:
            out["classes"] = [utf8(str(name)) for name in self.classes]
        if self.kind == "boxes":
            out["format"] = "XYXY"
        return out


def utf8(text: str) -> str:
    """Return text with backslashes for bytes of file names that are not UTF-8, as the engine writes them."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half of a surrogate pair, which stands for no byte
        return text.encode("utf-8", "backslashreplace").decode()


def record(item: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return an item of a dataset as a dict of fields.

    A dict, a named tuple and a dataclass have field names. The fields of a tuple are ``names``. Without these they are
    image and label for a picture and a number, else x, y or field_0, ...
    """
    if isinstance(item, Mapping):
        return {str(k): v for k, v in item.items()}
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return {f.name: getattr(item, f.name) for f in dataclasses.fields(item)}
    if hasattr(item, "_asdict"):
        return dict(item._asdict())
    values = list(item) if isinstance(item, tuple) or (isinstance(item, list) and names) else [item]
    if names is None:
        names = _names(values)
    if len(names) != len(values):
        raise ConfigError(f"names= has {len(names)} names and a record {len(values)} values")
    return dict(zip(names, values, strict=True))


def _names(values: list[Any]) -> list[str]:
    first = values[0] if values else None
    picture = _is_pil(first) or (isinstance(first, bytes) and _is_image(first))
    if len(values) == 1:
        return ["image" if picture else "text" if isinstance(first, str) else "x"]
    if len(values) == 2:
        if picture and isinstance(values[1], int | np.integer):
            return ["image", "label"]
        if picture and (_is_pil(values[1])):
            return ["image", "mask"]
        return ["x", "y"]
    return [f"field_{i}" for i in range(len(values))]


def infer(
    records: Sequence[Mapping[str, Any]], kinds: Mapping[str, str], classes: Mapping[str, list[str]]
) -> list[Spec]:
    """Return the types of the fields, from some of the records."""
    names = list(records[0])
    for given, what in ((kinds, "kinds"), (classes, "classes")):
        for name in given:
            if name not in names:
                raise ConfigError(f"{what}= names a field {name!r}, which records do not have; {nearest(name, names)}")
    for name, kind in kinds.items():
        if kind not in KINDS:
            raise ConfigError(f"kinds={{{name!r}: {kind!r}}}: there is no such kind; {nearest(kind, KINDS)}")
    for i, one in enumerate(records):
        if list(one) != names:
            raise ConfigError(
                f"a record has the fields {list(one)} and another one {names}: all have the same (looked at {i + 1})"
            )
    return [_spec(name, [plain(r[name]) for r in records], kinds.get(name, ""), classes.get(name)) for name in names]


def plain(value: Any) -> Any:
    """Return a value without its framework: tensors as arrays, files and the file objects of `datasets` as bytes."""
    if hasattr(value, "detach") and hasattr(value, "numpy"):  # torch's
        value = value.detach().cpu()
        return (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    if isinstance(value, Mapping) and set(value) == {"bytes", "path"}:
        return value["bytes"] if value["bytes"] is not None else Path(value["path"]).read_bytes()
    if isinstance(value, os.PathLike):
        return Path(value).read_bytes()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value[()]
    if type(value).__module__.startswith(("jax", "tensorflow")) and hasattr(value, "__array__"):
        return np.asarray(value)
    return value


def _spec(name: str, values: list[Any], kind: str, classes: list[str] | None) -> Spec:
    known = [v for v in values if v is not None]
    if not known:
        raise ConfigError(
            f"field {name!r} has no value (None) in the first {len(values)} records; leave it out in map="
        )
    kind = kind or _kind(name, known, classes)
    spec = Spec(name, kind, classes=classes)
    if kind in ("array", "ragged", "mask", "tokens", "keypoints"):
        arrays = [_pixels(v) if _is_pil(v) else np.asarray(v) for v in known]
        spec.dtype = _element(name, np.result_type(*(a.dtype for a in arrays)))
        if kind == "array":
            shapes = {a.shape for a in arrays}
            if len(shapes) > 1:
                raise ConfigError(
                    f"field {name!r} is an array and has several shapes: {sorted(shapes)[:3]}; "
                    f"kinds={{{name!r}: 'ragged'}} says that rows differ in length"
                )
            spec.shape = shapes.pop()
        elif kind in ("ragged", "keypoints"):
            inner = {a.shape[1:] for a in arrays if a.size or a.ndim > 1}
            if len(inner) > 1 or any(a.ndim == 0 for a in arrays):
                raise ConfigError(
                    f"field {name!r} has arrays that differ in more than their first axis: "
                    f"{sorted(inner)[:3]}; make them equal in map="
                )
            spec.shape = inner.pop() if inner else ()
        if kind == "keypoints":
            spec.dtype = "float32"
        if kind == "tokens" and spec.dtype not in ("uint16", "uint32"):
            most = max((int(a.max(initial=0)) for a in arrays), default=0)
            raise ConfigError(
                f"field {name!r} has tokens of type {spec.dtype}: make them uint16 or uint32 in "
                f"map= (the largest seen is {most})"
            )
    return spec


def _kind(name: str, values: list[Any], classes: list[str] | None) -> str:
    first = values[0]
    if all(isinstance(v, bool | int | np.integer | np.bool_) for v in values):
        return "label" if classes is not None or name.lower() in _LABELS else "int"
    if all(isinstance(v, int | float | np.number) for v in values):
        return "float"
    if isinstance(first, str):
        return "label" if classes is not None else "text"
    if isinstance(first, bytes):
        return "image" if all(map(_is_image, values)) else "audio" if all(map(_is_sound, values)) else "bytes"
    if _is_pil(first):
        return "mask" if any(m in name.lower() for m in _MASKS) else "image"
    if isinstance(first, np.ndarray):
        same = len({v.shape for v in values}) == 1
        return "array" if same and first.size else "ragged"
    if isinstance(first, list | tuple):
        try:
            lists = [np.asarray(v) for v in values]
        except ValueError:
            return "json"
        return "ragged" if all(a.dtype.kind in "biuf" for a in lists) else "json"
    if isinstance(first, Mapping):
        return "json"
    raise ConfigError(
        f"field {name!r} has a {type(first).__name__}, which cannot be stored; make it an array, "
        "bytes, text or a number in map="
    )


def _element(name: str, dtype: np.dtype[Any]) -> str:
    if dtype.name not in _ELEMENTS:
        raise ConfigError(
            f"field {name!r} has elements of type {dtype}, which cannot be stored; there are: {', '.join(_ELEMENTS)}"
        )
    return dtype.name


def _is_image(b: bytes) -> bool:
    return b.startswith(_IMAGES) or (b[:4] == b"RIFF" and b[8:12] == b"WEBP")


def _is_sound(b: bytes) -> bool:
    return b.startswith(_SOUNDS) or (b[:4] == b"RIFF" and b[8:12] == b"WAVE")


def _is_pil(value: Any) -> bool:
    return any(c.__module__ == "PIL.Image" and c.__name__ == "Image" for c in type(value).__mro__)


def _pixels(image: Any) -> npt.NDArray[Any]:
    """Return the class numbers of a mask of Pillow."""
    return np.asarray(image if image.mode in ("L", "P", "I", "I;16") else image.convert("L"))


class Writer:
    """Makes the bytes of records in the form of internal/source/spoolsource, except for the end of a file."""

    def __init__(self, specs: Sequence[Spec]) -> None:
        self._specs = specs
        self.words: list[int] = []
        self.parts: list[Any] = []
        self.size = 0
        self.count = 0

    def add(self, one: Mapping[str, Any], about: str) -> None:
        """Add a record; about names it in errors."""
        if list(one) != [s.name for s in self._specs]:
            raise ConfigError(
                f"{about} has the fields {list(one)} and those before it "
                f"{[s.name for s in self._specs]}: all have the same"
            )
        words, parts = [self.size], []
        size = 0
        for spec in self._specs:
            try:
                word, data = _encoded(spec, plain(one[spec.name]))
            except (TypeError, ValueError, OverflowError) as error:
                hint = f"; the first records have {spec.kind} there, kinds={{{spec.name!r}: ...}} sets another kind"
                if spec.kind == "label" and isinstance(one[spec.name], str):
                    hint = f"; a label is a number. For names give classes={{{spec.name!r}: [...]}}, in their order"
                raise ConfigError(
                    f"{about}: field {spec.name!r}: {error}{'' if isinstance(error, ConfigError) else hint}"
                ) from None
            words.append(word)
            for part in data:
                parts.append(part)
                size += len(part)
        self.words += words
        self.parts += parts
        self.size += size
        self.count += 1

    def taken(self) -> tuple[int, bytes, bytes]:
        """Return the number of records, their index with offsets from 0, and their values."""
        return self.count, np.asarray(self.words, np.uint64).tobytes(), b"".join(self.parts)


def _encoded(spec: Spec, value: Any) -> tuple[int, Sequence[Any]]:
    """Return the word of a value in the index, and its bytes."""
    if value is None:
        raise ConfigError("there is no value (None); leave such records out in map= by returning None for all of it")
    kind = spec.kind
    if kind in _NUMBERS:
        return _number(spec, value), ()
    if kind == "image":
        return _image(value)
    if kind == "mask":
        pixels = _pixels(value) if _is_pil(value) else np.asarray(value)
        if pixels.ndim != 2 or pixels.dtype.kind not in "biu":
            raise ValueError(f"a mask is a 2-D array of whole numbers, this one is {pixels.dtype}{list(pixels.shape)}")
        return _raw(_exactly(pixels, spec.dtype)[:, :, None])
    if kind in ("bytes", "audio"):
        data = value if isinstance(value, bytes) else np.ascontiguousarray(value).tobytes()
    elif kind == "text":
        data = str(value).encode()
    elif kind == "json":
        data = json.dumps(value, ensure_ascii=False, default=_jsonable).encode()
    else:
        data = _array(spec, np.asarray(value))
    return len(data), (data,)


def _number(spec: Spec, value: Any) -> int:
    if spec.kind == "float":
        return int(np.float64(value).view(np.uint64))
    if isinstance(value, str) and spec.classes is not None:
        if value not in spec.classes:
            raise ConfigError(f"class {value!r} is not one of classes=; {nearest(value, spec.classes)}")
        value = spec.classes.index(value)
    if not isinstance(value, int | np.integer | np.bool_) and float(value) != int(value):
        raise ValueError(f"{value} is not a whole number")
    return int(np.int64(int(value)).view(np.uint64))


def _image(value: Any) -> tuple[int, Sequence[Any]]:
    if isinstance(value, bytes):
        return len(value), (value,)
    if _is_pil(value):
        value = np.asarray(value if value.mode in ("L", "RGB") else value.convert("RGB"))
    pixels = np.asarray(value)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3):
        raise ValueError(
            f"an image is bytes of a file, a Pillow image or uint8 [height, width, 1 or 3], this "
            f"one is {pixels.dtype}{list(pixels.shape)}"
        )
    return _raw(pixels)


def _raw(pixels: npt.NDArray[Any]) -> tuple[int, Sequence[Any]]:
    height, width, channels = pixels.shape
    data = np.asarray([width, height, channels], "<u4").tobytes() + np.ascontiguousarray(pixels).tobytes()
    return len(data) | _RAW, (data,)


def _array(spec: Spec, value: npt.NDArray[Any]) -> bytes:
    dtype, inner = spec.dtype, spec.shape
    if spec.kind == "multilabel":
        dtype, inner = "int64", ()
    elif spec.kind == "boxes":
        dtype, inner = "float32", (4,)
    if spec.kind == "array":
        if value.shape != inner:
            raise ValueError(f"its shape is {list(value.shape)}, should be {list(inner)}")
    elif value.size == 0:
        return b""
    elif value.shape[1:] != inner:
        raise ValueError(f"its shape is {list(value.shape)}, should be {['n', *inner]}".replace("'", ""))
    return np.ascontiguousarray(_exactly(value, dtype)).astype(DTYPES[dtype], copy=False).tobytes()


def _exactly(value: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """Return value as dtype, if no number changes by more than rounding."""
    want = np.dtype(DTYPES[dtype])
    if value.dtype == want:
        return value
    if want.kind == "f" and value.dtype.kind in "biuf":
        return value.astype(want)
    out = value.astype(want)
    if not np.array_equal(out.astype(value.dtype), value):
        raise ValueError(f"its numbers of type {value.dtype} do not fit {dtype}")
    return out


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray) or hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} in it is not JSON")
