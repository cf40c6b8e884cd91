"""Checking the arguments of Loader."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Sequence
from typing import Any

from ._errors import ConfigError, UnknownArgument, nearest
from ._fields import LAYOUTS
from ._units import parse_bytes

# What people know from other loaders, and what there is instead.
_ELSEWHERE = {
    "pin_memory": "batches already lie in shared memory that can be copied from directly",
    "persistent_workers": "the engine always lives as long as the loader",
    "prefetch_factor": "use prefetch=, the number of batches made ahead",
    "collate_fn": "the engine puts batches together; functions go into map= and batch_map=",
    "worker_init_fn": "random numbers of map= are set for each record",
    "multiprocessing_context": "processes of map= are started as multiprocessing.set_start_method() says",
    "generator": "use seed=",
    "sampler": "use shuffle= and seed=, rank= and world_size=",
    "batch_sampler": "use batch_size=, shuffle= and seed=",
    "order": "use shuffle=",
    "pipelines": "use fields=",
    "transform": "use fields={'image': [...]}, or map= for a function",
    "transforms": "use fields={'image': [...]}, or map= for a function",
    "device": "copy the arrays of a batch to the device yourself",
}

# What a URL may have behind a #, as the engine reads it.
VIEW_KEYS = (
    "kinds",
    "where",
    "split",
    "part",
    "split_seed",
    "stratify",
    "group",
    "select",
    "drop",
    "rename",
    "resolution",
    "dedupe",
    "tensors",
    "tensors_of",
    "rows",
)


def refuse_unknown(unknown: dict[str, Any], known: list[str]) -> None:
    """Refuse arguments that there are not, with the nearest that there is."""
    for name in unknown:
        hint = _ELSEWHERE.get(name) or nearest(name, known)
        raise UnknownArgument(f"Loader has no argument {name!r}; {hint}")


def whole(name: str, value: Any, low: int, high: int = 2**63 - 1) -> int:
    """Check a whole number."""
    try:
        n = operator.index(value)
    except TypeError:
        raise ConfigError(f"{name}={value!r} must be a whole number") from None
    if isinstance(value, bool) or not low <= n <= high:
        limit = f"at least {low}" if high >= 2**63 - 1 else f"from {low} to {high}"
        raise ConfigError(f"{name}={value!r} must be a whole number, {limit}")
    return n


def choice(name: str, value: Any, known: tuple[str, ...]) -> str:
    """Check one of several words."""
    if value not in known:
        raise ConfigError(f"{name}={value!r}; {nearest(str(value), known)}")
    return str(value)


MAX_WINDOW = 1 << 20


def order(shuffle: Any) -> tuple[bool, int]:
    """Return what ``shuffle`` asks for: whether records are shuffled, and the window, 0 for none, -1 for a choice."""
    if not isinstance(shuffle, str):
        return bool(shuffle), 0
    if shuffle == "auto":
        return True, -1
    found = re.fullmatch(r"window:(\d{1,9})", shuffle)
    if found and 1 <= int(found[1]) <= MAX_WINDOW:
        return True, int(found[1])
    raise ConfigError(
        f'shuffle={shuffle!r}; it is True, False, "auto", or "window:N" with a number of chunks from 1 to {MAX_WINDOW}'
    )


def seconds(name: str, value: Any) -> float:
    """Check a time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ConfigError(f"{name}={value!r} must be a number of seconds, more than 0")
    return float(value)


def errors(on_error: Any, max_bad: Any, quarantine: Any, timeout: float) -> dict[str, Any]:
    """Return what the engine does about records and machines that fail."""
    config: dict[str, Any] = {"on_error": choice("on_error", on_error, ("raise", "skip", "repair")), "timeout": timeout}
    if on_error == "skip":
        config["max_bad"] = "default" if max_bad is None else bad_limit(max_bad)
        config["quarantine"] = "" if quarantine is None else os.path.abspath(os.path.expanduser(os.fspath(quarantine)))
    elif max_bad is not None or quarantine is not None:
        raise ConfigError(f'max_bad= and quarantine= are for on_error="skip", and on_error is {on_error!r}')
    return config


def bad_limit(value: Any) -> str:
    """Check how many records may be bad: a number, a share, or a percentage as text."""
    if isinstance(value, float) and 0 <= value <= 1:
        return f"{100 * value:.12g}%"
    if isinstance(value, str) and re.fullmatch(r"\d+|\d+(\.\d+)?%", value):
        return value
    try:
        return str(whole("max_bad", value, 0))
    except ConfigError:
        raise ConfigError(
            f'max_bad={value!r}; expected a number of records, a share such as 0.05, or text such as "5%"'
        ) from None


def size(name: str, value: Any) -> int:
    """Check a number of bytes: a number, or text such as ``"2GB"`` or ``"512 MiB"``."""
    if value is None:
        return 0
    if isinstance(value, str):
        try:
            value = parse_bytes(value)
        except ValueError as error:
            raise ConfigError(f"{name}={value!r} is not a number of bytes: {error}") from None
    return whole(name, value, 1)


# Switches the cache off that nobody has asked for.
CACHE_VARIABLE = "STOKER_CACHE"


def cache(value: Any, asked: bool) -> str:
    """Return what the engine is told of the cache; ``asked``: a folder or a limit was named."""
    value = "auto" if value is None else value
    if asked and value == "auto":
        return "on"
    if value == "auto":
        switch = os.environ.get(CACHE_VARIABLE, "auto")
        if switch not in ("auto", "off"):
            raise ConfigError(f'{CACHE_VARIABLE}={switch!r} in the environment; it is "auto" or "off"')
        return switch
    if not isinstance(value, bool):
        raise ConfigError(f'cache={value!r}; it is "auto", True or False')
    return "on" if value else "off"


def caching(cache_: Any, cache_dir: Any, cache_limit: Any) -> dict[str, Any]:
    """Return what the engine is told of the cache of files, its folder and its limit."""
    return {
        "cache": cache(cache_, cache_dir is not None or cache_limit is not None),
        "cache_dir": "" if cache_dir is None else os.path.abspath(os.path.expanduser(os.fspath(cache_dir))),
        "cache_limit": size("cache_limit", cache_limit),
    }


def layout(value: str | None, output: str, mapped: bool) -> str:
    """Return how images lie in a batch; a function of the user's gets them as NumPy's libraries have them."""
    if value is None:
        return "NCHW" if output == "torch" and not mapped else "NHWC"
    value = choice("layout", value, LAYOUTS)
    if value == "channels_last" and (output != "torch" or mapped):
        why = 'with NumPy it is called "NHWC"' if not mapped else "map= and batch_map= decide it themselves"
        raise ConfigError(f'layout="channels_last" is for output="torch"; {why}')
    return value


def sequence(
    length: Any, packing: str, fields: Sequence[str], shift: bool, dtype: str | None, pad: int
) -> dict[str, Any] | None:
    """Return what the engine is told of sequences, None where records are those of the source."""
    if length is None:
        if (packing, tuple(fields), shift, dtype, pad) != ("stream", (), True, None, 0):
            raise ConfigError("options of sequences need sequence_length=, the number of tokens of each")
        return None
    if isinstance(fields, str):
        raise ConfigError(f"sequence_fields={fields!r} must be a list of names")
    return {
        "length": whole("sequence_length", length, 1),
        "packing": str(packing),
        "fields": list(fields),
        "no_shift": not shift,
        "dtype": dtype or "",
        "pad": whole("sequence_pad", pad, -(2**63)),
    }


def source_url(source: Any) -> str:
    """Return the source as the engine, whose folder may be another, understands it."""
    try:
        text: str | bytes = os.fspath(source)
    except TypeError:
        raise ConfigError(f"source={source!r} must be a path or a URL") from None
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    if not text:
        raise ConfigError("source is empty; it must be a path or a URL")
    # What stands behind a # says which records and fields are wanted.
    view = re.search(rf"#(?=({'|'.join(VIEW_KEYS)})=)", text)
    if view and view.start() and not os.path.lexists(os.path.expanduser(text)):
        return source_url(text[: view.start()]) + text[view.start() :]
    formats = (
        "pack|npy|npz|tfrecord|mds|lmdb|litdata|lerobot|beton|idx|cifar|stl10|mat|tar|zip|hdf5|zarr|parquet|arrow|coco|voc|yolo"
        "|nifti|dicom|paths|volumes|ply|kitti|megatron|tokens|flo|pfm|csv|tsv"
        "|jsonl|audio|video|files|pairs|folder"
    )
    named = re.match(rf"({formats}):(?=[^/])", text)
    if named:
        path, mark, query = text[named.end() :].partition("?")
        if "://" in path:
            return text
        return named[0] + os.path.abspath(os.path.expanduser(path)) + mark + query
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", text):
        return text
    return os.path.abspath(os.path.expanduser(text))
