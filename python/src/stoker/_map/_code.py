"""The code of a user's functions, as a hash: a state does not fit a function whose body has changed."""

from __future__ import annotations

import enum
import functools
import hashlib
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_DEEPEST = 20  # functions that call functions, and values inside of values
_MOST = 10_000  # parts of a value; longer ones count by their type and length
_KINDS = 0x02AC  # flags of code: variable arguments, generators, coroutines
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
# Bytecode differs between versions of Python.
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class _Unreadable(Exception):
    """A function has no bytecode: it is written in C."""


def digest(functions: Iterable[Any]) -> str:
    """Return 8 digits for the code of functions, "" if one of them is not written in Python.

    It counts the bytecode, constants, names, default values and closures of a function, and the same for functions of
    the program that it names. Of an object it counts its method and its public attributes that are plain values.
    Functions of libraries count by their name, and so do values of other kinds, by their type.
    """
    h = hashlib.sha256()
    try:
        for function in functions:
            for part in _Walk().function(function):
                h.update(part.encode("utf-8", "surrogatepass") + b"\0")
    except _Unreadable:
        return ""
    return h.hexdigest()[:8]


class _Walk:
    """Goes through a function and everything in it, each function once."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}

    def function(self, f: Any, depth: int = 0) -> Iterator[str]:
        """Yield the description of a function, or of an object that is called."""
        if f is None or depth > _DEEPEST or id(f) in self._seen:
            yield "-"
            return
        self._seen[id(f)] = f
        if isinstance(f, types.FunctionType):
            yield from self._python(f, depth)
        elif isinstance(f, types.MethodType):
            yield from self.function(f.__func__, depth + 1)
            yield from self._attributes(f.__self__, depth)
        elif isinstance(f, functools.partial):
            yield from self.function(f.func, depth + 1)
            yield from self._value((f.args, f.keywords), depth)
        else:
            call = next((vars(c)["__call__"] for c in type(f).__mro__ if "__call__" in vars(c)), None)
            if not isinstance(call, types.FunctionType):
                raise _Unreadable
            yield f"{type(f).__module__}.{type(f).__qualname__}"
            yield from self.function(call, depth + 1)
            yield from self._attributes(f, depth)

    def _python(self, f: types.FunctionType, depth: int) -> Iterator[str]:
        wrapped = getattr(f, "__wrapped__", None)
        if _of_library(f.__code__):
            yield f"{f.__module__}.{f.__qualname__}"
        else:
            yield from self._code(f.__code__)
            yield from self._value((f.__defaults__, f.__kwdefaults__), depth)
            for name in dict.fromkeys(_names(f.__code__)):
                named = f.__globals__.get(name)
                if isinstance(named, types.FunctionType) and not _of_library(named.__code__):
                    yield name
                    yield from self.function(named, depth + 1)
        for cell in f.__closure__ or ():
            try:
                yield from self._value(cell.cell_contents, depth)
            except ValueError:  # not filled yet
                yield "empty"
        if wrapped is not None:
            yield from self.function(wrapped, depth + 1)

    def _code(self, code: types.CodeType) -> Iterator[str]:
        """Describe bytecode, without the names of files and local variables, lines and documentation."""
        yield code.co_code.hex()
        yield getattr(code, "co_exceptiontable", b"").hex()
        yield repr((code.co_argcount, code.co_kwonlyargcount, code.co_flags & _KINDS, code.co_names, code.co_freevars))
        consts = code.co_consts
        if consts and isinstance(consts[0], str) and code.co_flags & 0x02:
            # The first one is the documentation, or a text that the code uses; the bytecode tells which.
            consts = consts[1:] if _documented(code) else consts
        for const in consts:
            if isinstance(const, types.CodeType):
                yield from self._code(const)
            else:
                yield from self._value(const, 0)

    def _value(self, value: Any, depth: int) -> Iterator[str]:
        if isinstance(value, enum.Enum):
            yield f"{type(value).__qualname__}.{value.name}"
        elif type(value) in _PLAIN:
            yield f"{type(value).__name__} {value!r}"
        elif isinstance(value, types.FunctionType | types.MethodType | functools.partial):
            yield from self.function(value, depth + 1)
        elif isinstance(value, tuple | list | set | frozenset | Mapping) and depth < _DEEPEST and len(value) <= _MOST:
            items = list(value.items()) if isinstance(value, Mapping) else list(value)
            parts = ["\1".join(self._value(v, depth + 1)) for v in items]
            yield f"{type(value).__name__} {len(parts)}"
            # Their order depends on the process.
            yield from sorted(parts) if isinstance(value, set | frozenset) else parts
        else:
            yield _kind(value)

    def _attributes(self, thing: Any, depth: int) -> Iterator[str]:
        """Describe the settings of an object: its public attributes that are plain values or functions."""
        if isinstance(thing, type | types.ModuleType):
            return
        chain = getattr(thing, "_functions", None)  # of Dataset.map
        if isinstance(chain, tuple):
            for f in chain:
                yield from self.function(f, depth + 1)
        for name, value in sorted(getattr(thing, "__dict__", {}).items()):
            if not name.startswith("_"):
                yield name
                yield from self._value(value, depth + 1)


def _kind(value: Any) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def _documented(code: types.CodeType) -> bool:
    """Report whether the first constant of a function is its documentation and nothing else."""
    import dis

    return not any(i.opcode in dis.hasconst and i.arg == 0 for i in dis.get_instructions(code))


def _of_library(code: types.CodeType) -> bool:
    return code.co_filename.startswith(_LIBRARIES) or code.co_filename.startswith("<frozen")


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _names(const)
