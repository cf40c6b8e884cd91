"""Analysis of a program's function: the transforms that it names, and whether it leaves random numbers alone."""

from __future__ import annotations

import argparse
import builtins
import dataclasses
import dis
import functools
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from . import _proof

# A function that a function calls, and so on.
_DEEPEST = 4
_LOCAL = object()  # a value that only exists while a function runs
_ABSENT = object()

# Functions of modules that may be called, because they only make values from values.
_MAKES = {
    "torch": {
        "stack", "tensor", "as_tensor", "cat", "concat", "from_numpy", "zeros", "ones", "full", "arange", "Tensor",
        "FloatTensor", "LongTensor", "is_tensor",
    },
    "numpy": {"array", "asarray", "stack", "concatenate", "zeros", "ones", "full", "arange"},
}  # fmt: skip
_BUILTINS = {
    "abs", "all", "any", "bool", "bytes", "dict", "enumerate", "filter", "float", "frozenset", "int", "isinstance",
    "len", "list", "map", "max", "min", "next", "print", "range", "repr", "reversed", "round", "set", "sorted", "str",
    "sum", "tuple", "type", "zip", "iter", "slice", "callable", "Exception", "KeyError", "ValueError", "TypeError",
    "AssertionError", "RuntimeError", "IndexError",
}  # fmt: skip
# Builtins that use containers, but not the objects in them.
_PLAIN_BUILTINS = {"dict", "enumerate", "len", "list", "map", "range", "tuple", "zip"}
# Names of functions that set random numbers, of any module or object.
_SETS = {
    "manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "get_rng_state", "fork_rng", "setstate",
    "default_generator", "getstate", "set_state", "get_state", "set_seed", "seed_everything", "generator",
}  # fmt: skip
# Those of them that do not only read.
_SETTERS = _SETS - {"get_rng_state", "getstate", "get_state", "fork_rng", "generator"}
# Packages whose classes set no seeds.
_OTHERS = _proof.LIBRARIES | {"builtins", "typing"}
# Libraries whose collate functions are trusted.
_LIBRARIES = ("torch.utils.data.", "transformers.", "accelerate.")
_REFUSED = (
    "IMPORT_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "LOAD_BUILD_CLASS", "LOAD_SUPER_ATTR",
    "LOAD_SUPER_METHOD", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_LOCALS",
)  # fmt: skip
_CATCHES = ("PUSH_EXC_INFO", "CHECK_EXC_MATCH", "SETUP_FINALLY", "SETUP_WITH", "BEFORE_WITH", "MATCH_CLASS")
_GLOBALS = ("LOAD_GLOBAL",)
_CELLS = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_BETWEEN = ("PUSH_NULL", "CACHE", "NOP", "EXTENDED_ARG")


def named(function: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the objects that a function, or another callable, can use, one after the other.

    These are the names in its code (of its module and of the function around it), its defaults, bound values, and the
    attributes of the object that it is a method of. The functions of the program among them are followed in the same
    way.
    """
    if depth > _DEEPEST:
        return
    if isinstance(function, functools.partial):
        for value in (*function.args, *function.keywords.values()):
            yield value
        yield from named(function.func, depth + 1)
    elif isinstance(function, types.MethodType):
        yield from vars(function.__self__).values() if hasattr(function.__self__, "__dict__") else ()
        yield from named(function.__func__, depth + 1)
    elif isinstance(function, types.FunctionType):
        values = [
            *(_cell(cell) for cell in function.__closure__ or ()),
            *(function.__globals__.get(name) for name in _names(function.__code__)),
            *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(),
        ]  # fmt: skip
        for value in values:
            yield value
            if isinstance(value, types.FunctionType | functools.partial | types.MethodType):
                yield from named(value, depth + 1)
            elif dataclasses.is_dataclass(value) or isinstance(value, dict):
                yield from (value if isinstance(value, dict) else vars(value)).values()
    elif hasattr(function, "__dict__") and not isinstance(function, type):
        yield from vars(function).values()


def may_seed(function: Any) -> bool:
    """Whether the code of a callable of the program's, or of something that it can use, names a setter of seeds."""
    kinds = [kind for kind in type(function).__mro__ if kind.__module__.partition(".")[0] not in _OTHERS]
    used = [function, *named(function)]
    for method in itertools.chain(*(vars(kind).values() for kind in kinds)):
        used += [method, *named(method)]
    return any(isinstance(v, types.FunctionType) and not _SETTERS.isdisjoint(_names(v.__code__)) for v in used)


def names(function: types.FunctionType, name: str) -> bool:
    """Whether the code of a function names something."""
    return name in _names(function.__code__)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _names(const)


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has none yet
        return None


def draws_alone(function: Any, known: Callable[[Any], bool]) -> bool:
    """Whether a function, or a collate of a library's, provably does not set random numbers.

    The code of such a function names only builtins, functions that make values, plain values, other such functions, and
    ``known`` objects. So nothing in it changes the numbers that the transforms draw.
    """
    return _Look(known).value(function, 0)


def leaves_nothing(function: Any, known: Callable[[Any], bool]) -> bool:
    """Whether a function of the program's provably does nothing but return a value, in whatever process it runs.

    It uses only the names that ``draws_alone`` allows. It uses nothing that could be changed, no attribute of ``known``
    objects, no function of a library, and none that tells one kind of object from another. It catches no exception. So
    it may be run in vain. In a process that is not a fork of this one, the program's modules can have other values.
    """
    return _Look(known, strict=True).value(function, 0)


class _Look:
    def __init__(self, known: Callable[[Any], bool], *, strict: bool = False) -> None:
        self._known, self._strict = known, strict
        self._plain = _constant if strict else _plain
        self._builtins = _PLAIN_BUILTINS if strict else _BUILTINS
        self._refused = (*_REFUSED, *_CATCHES) if strict else _REFUSED

    def value(self, value: Any, depth: int) -> bool:
        """Whether a value may be used and called."""
        if value is None or value is _LOCAL or self._known(value) or self._plain(value):
            return True
        if depth > _DEEPEST:
            return False
        if isinstance(value, functools.partial):
            parts = (value.func, *value.args, *value.keywords.values())
            return type(value) is functools.partial and all(self.value(part, depth + 1) for part in parts)
        if isinstance(value, types.FunctionType):
            if self._strict and _proof.is_of_library(value):  # it may return what only its process has
                return False
            return (not self._strict and _of_library(value)) or self._function(value, depth + 1)
        if not self._strict and not isinstance(value, type | types.ModuleType) and _of_library(type(value)):
            return all(self.value(v, depth + 1) for v in getattr(value, "__dict__", {}).values() if callable(v))
        return False

    def _function(self, function: types.FunctionType, depth: int) -> bool:
        code = function.__code__
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        if not all(self.value(value, depth) for value in defaults):
            return False
        cells = dict(zip(code.co_freevars, map(_cell, function.__closure__ or ()), strict=True))
        return self._code(code, function.__globals__, cells, depth)

    def _code(self, code: types.CodeType, names: dict[str, Any], cells: dict[str, Any], depth: int) -> bool:
        chain: Any = _LOCAL  # what was loaded last, where it is more than a local value
        for step in dis.get_instructions(code):
            what = step.opname
            if what in _BETWEEN:
                continue
            if what in _ATTRIBUTES:
                chain = self._attribute(chain, str(step.argval))
                if chain is _ABSENT:
                    return False
                continue
            if not self._end(chain, depth):
                return False
            chain = _LOCAL
            if what in self._refused or (what == "STORE_DEREF" and step.argval in cells):
                return False
            if what in _GLOBALS:
                chain = self._global(names, str(step.argval))
            elif what in _CELLS:
                chain = cells.get(str(step.argval), _LOCAL)
        inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
        return self._end(chain, depth) and all(
            self._code(c, names, {n: cells[n] for n in c.co_freevars if n in cells}, depth + 1) for c in inner
        )

    def _attribute(self, of: Any, name: str) -> Any:
        """Return an attribute, _LOCAL for one of a local value, _ABSENT for one that may not be asked for."""
        if name.startswith("__") or name in _SETS:
            return _ABSENT
        if of is _LOCAL or self._plain(of):
            return _LOCAL
        if self._known(of):
            return _ABSENT if self._strict else _LOCAL
        if isinstance(of, types.ModuleType):
            return vars(of).get(name, _ABSENT)
        holder = dataclasses.is_dataclass(of) or isinstance(of, argparse.Namespace | types.SimpleNamespace)
        if holder and not isinstance(of, type) and not hasattr(type(of), "__getattr__"):
            # A default of a dataclass is an attribute of its class; a property would be a function.
            of_class = getattr(type(of), name, None)
            if not hasattr(of_class, "__get__"):
                return vars(of).get(name, _ABSENT)
        return _ABSENT

    def _global(self, names: dict[str, Any], name: str) -> Any:
        if name in names:
            return names[name]
        own = vars(builtins)
        return _LOCAL if name in self._builtins and name in own else own.get(name, _ABSENT)

    def _end(self, value: Any, depth: int) -> bool:
        """Whether the result of a chain of attributes may be used."""
        return value is _LOCAL or _made(value) or self.value(value, depth)


def _plain(value: Any) -> bool:
    """Whether a value is data that cannot be called."""
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_plain, value))
    if isinstance(value, dict):
        return all(_plain(k) and _plain(v) for k, v in value.items())
    return value is None or type(value) in (str, bytes, int, float, bool, torch.dtype, torch.Tensor, np.ndarray)


def _constant(value: Any) -> bool:
    """Whether a value is data that cannot be changed."""
    if type(value) is tuple:
        return all(map(_constant, value))
    return value is None or type(value) in (str, bytes, int, float, bool, torch.dtype)


def _made(value: Any) -> bool:
    """Whether a value is one of a library's that makes values of values."""
    for module, names in _MAKES.items():
        there = vars(__import__(module))
        if any(value is there.get(name, _ABSENT) for name in names):
            return True
    return False


def _of_library(value: Any) -> bool:
    """Whether a function, or the calls of a class, are a library's own."""
    name = f"{getattr(value, '__module__', None)}.{value.__qualname__}"
    if not name.startswith(_LIBRARIES) or value.__name__ in _SETS:
        return False
    if isinstance(value, type):
        return _proof.is_own(vars(value).get("__call__"), f"{name}.__call__")
    return _proof.is_own(value, name)
