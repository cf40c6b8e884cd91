"""The distinction between the code of the installed libraries and code that replaces it."""

from __future__ import annotations

import functools
import types
from typing import Any

from . import _proof
from ._proof import Unknown as Unknown

# The attribute of a function of Stoker's that replaces a method while functions of the program run. It holds that
# method, or None if the class inherits it.
INSTEAD_OF = "_stoker_instead_of"


def qualified(cls: type) -> str:
    """Return the full name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def check_class(cls: type) -> None:
    """Raise Unknown unless a class is a library's own, and known."""
    _proof.check_object(cls, qualified(cls))


def check_instance(value: object) -> None:
    """Raise Unknown when an object has methods of its own, or hooks."""
    mine = getattr(value, "__dict__", {})
    for name, item in mine.items():
        if callable(item) and (name.startswith("__") or callable(getattr(type(value), name, None))):
            raise Unknown(f"{name} of a {type(value).__name__} was replaced")
        if _proof.is_attribute(type(value), name):
            raise Unknown(f"a {type(value).__name__} has a {name} of its own")
    for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
        if mine.get(hooks):
            raise Unknown(f"a {type(value).__name__} has hooks")


def is_own(value: Any) -> bool:
    """Whether a callable is of the program, and not of a library."""
    module = getattr(value, "__module__", None) or ""
    return value is not None and str(module).partition(".")[0] not in _proof.LIBRARIES


# Names that functions for seeding may use: modules, and the functions called on them.
_SEEDERS = ("timm.data.loader._worker_init", "transformers.trainer_utils.seed_worker")
_SEEDING = {"torch", "np", "numpy", "random", "initial_seed", "seed", "manual_seed", "set_num_threads"}


def only_seeds(value: object) -> bool:
    """Whether a ``worker_init_fn`` only sets random numbers.

    It is timm's or transformers' own, or a function whose code names only modules of random numbers and their functions
    for seeding.
    """
    if isinstance(value, functools.partial):
        simple = not value.args and all(isinstance(v, str | int) for v in value.keywords.values())
        return simple and any(_proof.is_own(value.func, name) for name in _SEEDERS)
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
    """Raise Unknown when workers may change their dataset at their beginning, or batches are made in another way."""
    _proof.check(*_proof.FETCHERS)
    if loader.timeout and loader.num_workers == 0:
        raise Unknown("timeout without workers")
    if loader.worker_init_fn is not None and loader.num_workers > 0 and not only_seeds(loader.worker_init_fn):
        raise Unknown(
            "worker_init_fn may change the dataset in the workers", "a worker_init_fn that only sets seeds, or none"
        )


def check_seeds(loader: Any, *, python: bool) -> None:
    """Raise Unknown when ``worker_init_fn`` sets random numbers that transforms draw: torch's, and Python's if asked.

    They may be the same in each epoch. Those of the libraries' own functions are not.
    """
    init = loader.worker_init_fn if loader.num_workers > 0 else None
    names = init.__code__.co_names if isinstance(init, types.FunctionType) else ()
    if "manual_seed" in names or (python and "random" in names):
        raise Unknown(
            "worker_init_fn sets the random numbers that the transforms draw",
            "a worker_init_fn that only sets NumPy's, or none: torch has set those of its workers",
        )


def collate_of(loader: Any) -> Any:
    """Return the collate of an epoch that begins now.

    Worker processes have a copy of ``default_collate_fn_map``, so with workers torch's default collate gets a copy.
    """
    if loader.num_workers == 0 or not _proof.is_known(loader.collate_fn, _proof.COLLATES[0]):
        return loader.collate_fn
    from torch.utils.data._utils import collate

    return functools.partial(collate.collate, collate_fn_map=dict(collate.default_collate_fn_map))


def _looks_up(cls: type, attribute: str) -> bool:
    """Whether an attribute of an object comes from its ``__dict__``: not a property, and not a custom look-up."""
    for base in cls.__mro__[:-1]:
        of_class = vars(base).get(attribute)
        own_dict = isinstance(vars(base).get("__dict__"), types.GetSetDescriptorType | None)
        if "__getattribute__" in vars(base) or hasattr(of_class, "__set__") or not own_dict:
            return False
    return type(cls) is type


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
    if not _looks_up(cls, code.co_names[0]):
        return None
    if same.co_code == code.co_code and same.co_names == code.co_names and set(code.co_consts) <= known:
        return code.co_names[0]
    return None
