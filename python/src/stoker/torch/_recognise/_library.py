"""What is the installed libraries' own, and what somebody has put in its place."""

from __future__ import annotations

import functools
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

_STDLIB = str(Path(sysconfig.get_paths()["stdlib"]).resolve())


class Unknown(Exception):
    """Something that is not proven to be equal; the text says what, as the reason in ``explain()``."""


@functools.cache
def _root(package: str) -> str:
    """Return the folder that a package's modules lie in."""
    found = getattr(sys.modules.get(package), "__file__", None)
    return str(Path(found).resolve().parent) if found else "\0"


@functools.cache
def _file(name: str) -> str:
    """Return the path of a module's file without links, of which each of its functions asks."""
    return str(Path(name).resolve())


def is_compiled_from(code: types.CodeType, *packages: str) -> bool:
    """Whether code was compiled from a file of one of the packages, or of Python itself."""
    name = code.co_filename
    if name.startswith("<frozen"):
        return True
    file = _file(name)
    return file.startswith(_STDLIB + "/") or any(file.startswith(_root(p) + "/") for p in packages)


def _function(value: object) -> types.FunctionType | None:
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    return value if isinstance(value, types.FunctionType) else None


def qualified(cls: type) -> str:
    """Return the full name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


# What is called of datasets and transforms.
_CALLED = ("__call__", "forward", "__getitem__", "__len__", "transform", "make_params")


def check_class(cls: type) -> None:
    """Raise Unknown when a method of a library's class is not its own any more.

    Each function of the class and its bases must be compiled from the library's files, and those of the class must
    have its name: neither a function of a program nor another one of the library has been put there.
    """
    package = cls.__module__.partition(".")[0]
    for base in cls.__mro__[:-1]:
        for name, value in vars(base).items():
            f = _function(value)
            if f is None:
                if name in (*_CALLED, "__getitems__") and value is not None:
                    raise Unknown(f"{qualified(base)}.{name} was replaced")
                continue
            code = f.__code__
            of = base.__module__.partition(".")[0]
            if not is_compiled_from(code, package, of, "torch", "typing_extensions"):
                raise Unknown(f"{qualified(base)}.{name} was replaced")
            own = of in (package, "torchvision") and of != "torch"
            if own and name in _CALLED:
                if hasattr(f, "__wrapped__"):
                    continue  # no_grad and the like, of the library itself
                if f.__module__ != base.__module__ or code.co_name != name:
                    raise Unknown(f"{qualified(base)}.{name} was replaced")


def check_method(cls: type, name: str) -> None:
    """Raise Unknown when a method of a library's class is not its own any more."""
    f = _function(vars(cls).get(name))
    own = f is not None and is_compiled_from(f.__code__, cls.__module__.partition(".")[0])
    if f is None or not own or f.__code__.co_name != name:
        raise Unknown(f"{qualified(cls)}.{name} was replaced")


def check_instance(value: object) -> None:
    """Raise Unknown when an object has methods of its own, or hooks."""
    mine = getattr(value, "__dict__", {})
    for name, item in mine.items():
        if callable(item) and callable(getattr(type(value), name, None)):
            raise Unknown(f"{name} of a {type(value).__name__} was replaced")
    for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
        if mine.get(hooks):
            raise Unknown(f"a {type(value).__name__} has hooks")


def check_module(name: str, *functions: str) -> None:
    """Raise Unknown when a function of a module was replaced."""
    module = sys.modules.get(name)
    if module is None:
        return
    package = name.partition(".")[0]
    for function in functions or [k for k, v in vars(module).items() if isinstance(v, types.FunctionType)]:
        f: Any = getattr(module, function, None)
        if not isinstance(f, types.FunctionType) or not is_compiled_from(f.__code__, package, "torch", "PIL", "numpy"):
            raise Unknown(f"{name}.{function} was replaced")


def is_function(value: object, module: str, name: str) -> bool:
    """Whether a value is a function of a library, as it is installed."""
    return (
        isinstance(value, types.FunctionType)
        and value.__module__ == module
        and value.__qualname__ == name
        and is_compiled_from(value.__code__, module.partition(".")[0])
        and value is getattr(sys.modules.get(module), name, None)
    )


# What functions that only seed random numbers may name: modules, and what of them is called.
_SEEDERS = (("timm.data.loader", "_worker_init"), ("transformers.trainer_utils", "seed_worker"))
_SEEDING = {"torch", "np", "numpy", "random", "initial_seed", "seed", "manual_seed", "set_num_threads"}


def only_seeds(value: object) -> bool:
    """Whether a ``worker_init_fn`` does nothing but to set random numbers.

    It is timm's or transformers' own, or a function whose code names nothing but modules of random numbers and their
    functions for that.
    """
    if isinstance(value, functools.partial):
        simple = not value.args and all(isinstance(v, str | int) for v in value.keywords.values())
        return simple and any(is_function(value.func, *own) for own in _SEEDERS)
    if not isinstance(value, types.FunctionType) or value.__closure__ or value.__defaults__ or value.__kwdefaults__:
        return False
    code = value.__code__
    if not set(code.co_names) <= _SEEDING or any(isinstance(c, types.CodeType) for c in code.co_consts):
        return False
    modules = {"torch": "torch", "np": "numpy", "numpy": "numpy", "random": "random"}
    return all(
        isinstance(found, types.ModuleType) and found.__name__ == modules.get(name)
        for name in code.co_names
        if (found := value.__globals__.get(name)) is not None
    )


def check_init(loader: Any) -> None:
    """Raise Unknown when workers may change their dataset at their beginning."""
    if loader.worker_init_fn is not None and loader.num_workers > 0 and not only_seeds(loader.worker_init_fn):
        raise Unknown("worker_init_fn may change the dataset in the workers")


_FORWARD = "def {name}(self, {argument}):\n    return self.{attribute}({argument})\n"


def forwards_to(cls: type, method: str) -> str | None:
    """Return the attribute that ``method`` of a class only calls with its argument, None when it does anything else.

    It is so when its code is that of ``return self.ATTRIBUTE(argument)``.
    """
    f: Any = vars(cls).get(method)
    if not isinstance(f, types.FunctionType) or f.__defaults__ or f.__kwdefaults__ or f.__closure__:
        return None
    code = f.__code__
    if code.co_argcount != 2 or len(code.co_names) != 1 or len(code.co_varnames) != 2:
        return None
    text = _FORWARD.format(name="f", argument=code.co_varnames[1], attribute=code.co_names[0])
    if code.co_varnames[0] != "self":
        return None
    scope: dict[str, Any] = {}
    exec(compile(text, "<template>", "exec"), scope)  # made of two identifiers of code that runs anyway
    same = scope["f"].__code__
    known = {None, f.__doc__}
    if same.co_code == code.co_code and same.co_names == code.co_names and set(code.co_consts) <= known:
        return code.co_names[0]
    return None
