"""Proof that functions of the libraries are those that the engine was compared with.

The code of a known version defines the effect of a function. So a function counts as known if

- its code equals the code compiled from its module's file,
- the text of its code and the objects that its names refer to have the digests of a known version (_known.py),
- and the same holds for each function that it can reach, in the modules of ``SCOPE``.

``check`` starts at the names of transforms, datasets and functions, and follows their calls. Anything else is Unknown:
a function that was replaced, at any depth and by any object, or that another version has changed. Proven results are
stored with the values that they depend on, so that another call only compares those.

To know a new version, run the tests of recognised loaders with it, and then ``scripts/known.py``, which adds the
digests of the installed libraries to _known.py.
"""

from __future__ import annotations

import ast
import bisect
import builtins
import contextlib
import enum
import functools
import hashlib
import importlib.metadata
import itertools
import operator
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ._known import FILES, KNOWN

_KERNELS = "torchvision.transforms.v2.functional._utils"

# Modules whose functions are followed: names, and prefixes that end with a dot.
SCOPE = (
    "torchvision.transforms.", "torchvision.tv_tensors", "torchvision.tv_tensors.", "torchvision.datasets.",
    "timm.data.", "PIL.Image", "PIL.ImageEnhance", "PIL.ImageOps", "PIL.ImageFilter", "PIL.ImageChops",
    "datasets.arrow_dataset", "datasets.formatting", "datasets.formatting.", "datasets.features.image",
    "torch.utils.data.dataset", "torch.utils.data._utils.collate", "torch.utils.data._utils.fetch",
    "torch.nn.modules.module", "torch.nn.modules.container", "torch.nn.modules.linear",
)  # fmt: skip

# Packages whose functions may be on the path, in addition to Python's.
LIBRARIES = {
    "torch",
    "torchvision",
    "PIL",
    "timm",
    "datasets",
    "numpy",
    "transformers",
    "accelerate",
    "typing_extensions",
}

# Methods that do not change the results of a transform or a dataset: making, printing, comparing and storing objects.
UNUSED = {
    "__init__", "__new__", "__repr__", "__str__", "__del__", "__init_subclass__", "__reduce__", "__reduce_ex__",
    "__getstate__", "__setstate__", "__dir__", "__class_getitem__", "extra_repr", "__add__", "__eq__", "__ne__",
    "__hash__", "__enter__", "__exit__", "__deepcopy__", "__copy__", "__array_interface__", "__setattr__",
    "__delattr__", "__setitem__", "__delitem__", "__iadd__", "__mul__", "__imul__", "__rmul__",
    "__arrow_c_array__", "__arrow_c_schema__", "_generate_next_value_",
    "_new_member_", "_value_repr_", "_use_args_", "_member_type_",
}  # fmt: skip

# For large classes, the methods on the path. Methods of all other classes are followed if a function names them.
ONLY: dict[str, set[str]] = {
    "datasets.arrow_dataset.Dataset": {"__getitem__", "__getitems__", "__len__", "_getitem"},
    "datasets.features.image.Image": {"decode_example"},
}

# Functions that the recogniser relies on, in addition to its tables: opening images and making batches ...
PILLOW = (
    "PIL.Image.open", "PIL.Image.fromarray", "PIL.Image.Image.convert", "PIL.Image.Image.load",
    "PIL.Image.Image.resize", "PIL.Image.Image.crop", "PIL.Image.Image.transpose", "PIL.Image.Image.copy",
)  # fmt: skip
LOADERS = ("torchvision.datasets.folder.default_loader", "torchvision.datasets.folder.pil_loader")
COLLATES = ("torch.utils.data._utils.collate.default_collate", "timm.data.loader.fast_collate")
# ... functions that call transforms, datasets of datasets, and those of Hugging Face.
FETCHERS = ("torch.utils.data._utils.fetch._MapDatasetFetcher.fetch",)
SEQUENCES = ("torch.nn.modules.container.Sequential", "torch.nn.modules.container.ModuleList")
DATASETS = ("torch.utils.data.dataset.Subset", "torch.utils.data.dataset.ConcatDataset")
TABLES = ("datasets.arrow_dataset.Dataset",)
_FORMATS = "datasets.formatting."
FORMATTERS = {
    None: _FORMATS + "formatting.PythonFormatter",
    "custom": _FORMATS + "formatting.CustomFormatter",
    "numpy": _FORMATS + "np_formatter.NumpyFormatter",
    "torch": _FORMATS + "torch_formatter.TorchFormatter",
}
EXAMPLES = ("datasets.features.image.Image.decode_example",)

# Values set by the user, by the environment, or by imports: the recogniser checks them where they matter.
LOOSE = {
    *(f"PIL.Image.{n}" for n in (
        "OPEN", "ID", "MIME", "EXTENSION", "SAVE", "SAVE_ALL", "DECODERS", "ENCODERS", "ElementTree", "_initialized",
        "_plugins", "MAX_IMAGE_PIXELS",
    )),
    f"{_KERNELS}._KERNEL_REGISTRY",
    *(f"datasets.formatting.{n}" for n in (
        "_FORMAT_TYPES", "_FORMAT_TYPES_ALIASES", "_FORMAT_TYPES_ALIASES_UNAVAILABLE"
    )),
}  # fmt: skip

# A method that a class has under another name.
ALIASES = {
    "torch.nn.modules.module.Module.__call__": "Module._wrapped_call_impl",
    "torch.nn.modules.module.Module.forward": "_forward_unimplemented",
    "PIL.Image.ImagePointTransform.__radd__": "ImagePointTransform.__add__",
}

_ABSENT = object()
_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_BUILT_IN = (
    types.BuiltinFunctionType | types.MethodDescriptorType | types.WrapperDescriptorType
    | types.ClassMethodDescriptorType | types.GetSetDescriptorType | types.MemberDescriptorType
)  # fmt: skip
# The beginning of a digest of a value in the body of a class.
_ATTRIBUTE = "value."
# Entries of a table, levels of it, and of modules in modules.
_MOST, _DEEPEST = 256, 4


class Unknown(Exception):
    """An object that is not proven to be equal; the text is the reason in ``explain()``.

    ``step`` is the suggested change, "" for the step that always helps.
    """

    def __init__(self, why: str, step: str = "") -> None:
        super().__init__(why)
        self.step = step


def check(*names: str) -> None:
    """Raise Unknown unless the functions and classes of these names, and all that they reach, are known."""
    for name in names:
        found = _PROVEN.get(name)
        if found is None or not found.holds():
            _PROVEN.pop(name, None)
            walk = _Walk()
            walk.begin(name)
            _PROVEN[name] = walk.proven


def watch() -> Callable[[], bool]:
    """Return a function that reports, for each batch, whether all that is proven now still holds."""
    global _WATCHED
    proofs = [_PROVEN[name] for name in proven()]
    if _WATCHED is None or len(proofs) != len(_WATCHED[0]) or not all(map(operator.is_, proofs, _WATCHED[0])):
        whole = Proven()
        for proof in proofs:
            whole.add(proof)
        _WATCHED = proofs, whole
    return _WATCHED[1].holds


def proven() -> list[str]:
    """Return the names of which all is proven now."""
    return [name for name, found in _PROVEN.items() if found.holds()]


def are_known(names: Sequence[str]) -> bool:
    """Whether all that names lead to is known. Some of it may be new: Pillow registers formats when it meets them."""
    return all(_passes(check_formats) if name == "formats" else _passes(check, name) for name in names)


def check_object(value: Any, name: str) -> None:
    """Raise Unknown unless a value is the function or the class of a name, and that is known."""
    if _find(name)[0] is not value:
        raise Unknown(f"{name} was replaced")
    check(name)


def find(name: str) -> Any:
    """Return the object with a dotted name, or raise Unknown."""
    return _find(name)[0]


def is_attribute(cls: type, name: str) -> bool:
    """Whether functions of a class read a value of this name that its body defines."""
    return any(
        digest.startswith(_ATTRIBUTE) for base in cls.__mro__ for digest in KNOWN.get(f"{_full(base)}.{name}", ())
    )


def is_known(value: Any, name: str) -> bool:
    """Whether a value is the function of a name, and known."""
    return _passes(check_object, value, name)


def is_own(value: Any, name: str) -> bool:
    """Whether a value is the function of a name as its module's file defines it, of whatever version."""
    return isinstance(value, types.FunctionType) and _passes(_check_own, value, name)


def _check_own(value: types.FunctionType, name: str) -> None:
    check_function(value)
    if _find(name)[0] is not value or _dotted(value) != name:
        raise Unknown(f"{name} was replaced")


def _passes(of: Callable[..., None], *args: Any) -> bool:
    try:
        of(*args)
    except Unknown:
        return False
    return True


def check_formats() -> None:
    """Raise Unknown unless all that opens files is Pillow's own: each format, each class and function of it."""
    import PIL.Image

    found = _PROVEN.get("formats")
    if found is not None and found.holds():
        return
    PIL.Image.preinit()
    walk = _Walk()
    walk.formats(PIL.Image.OPEN, PIL.Image.ID)
    walk.codecs()
    _PROVEN["formats"] = walk.proven


def check_formatter(format_type: str | None) -> None:
    """Raise Unknown unless known code makes the rows of a Hugging Face dataset."""
    from datasets import formatting  # type: ignore[import-not-found,import-untyped,unused-ignore]

    kind = formatting._FORMAT_TYPES_ALIASES.get(format_type, format_type)
    if kind not in FORMATTERS:
        raise Unknown(f"a Dataset of Hugging Face with the format {format_type!r}")
    check_object(formatting._FORMAT_TYPES.get(kind), FORMATTERS[kind])


def check_settings() -> None:
    """Raise Unknown if a setting changes the results of transforms, for the whole process or temporarily."""
    import torch
    from torch.utils._device import DeviceContext

    if torch.get_default_dtype() != torch.float32:
        raise Unknown(f"the default dtype is {torch.get_default_dtype()}")
    helpers = sys.modules.get("torchvision.tv_tensors._torch_function_helpers")
    if getattr(helpers, "_TORCHFUNCTION_SUBCLASS", False):
        raise Unknown("tv_tensors.set_return_type() was called")
    if torch.is_autocast_enabled("cpu"):
        raise Unknown("torch.autocast is on for the CPU, where it changes the precision of transforms")
    for mode in modes():
        # Functions also notice a default device, but they are run for their targets only.
        if type(mode) is not DeviceContext:
            raise Unknown(f"{type(mode).__qualname__} changes what operations of torch do")


def modes() -> list[Any]:
    """Return the modes of torch that change what its operations do, a default device among them."""
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    return [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]


@contextlib.contextmanager
def without_modes() -> Iterator[None]:
    """Let torch do as in a process where no mode was entered."""
    from torch.overrides import _get_current_function_mode_stack, _pop_mode_temporarily

    with contextlib.ExitStack() as stack:
        for _ in _get_current_function_mode_stack():
            stack.enter_context(_pop_mode_temporarily())
        yield


class Proven:
    """The objects that a proof depends on. While all of them are the same, the proof holds."""

    def __init__(self) -> None:
        # For each mapping: the values of names in it.
        self.names: dict[int, tuple[Mapping[str, Any], dict[str, Any]]] = {}
        self.functions: dict[int, tuple[types.FunctionType, Any, Any, Any]] = {}
        self.classes: dict[int, tuple[type, Any, int]] = {}
        self.tables: dict[int, tuple[Any, Any]] = {}
        self.modules: dict[int, tuple[types.ModuleType, type]] = {}
        self._ready: _Ready | None = None

    def bind(self, where: Mapping[str, Any], values: dict[str, Any]) -> None:
        """Add values of names in a mapping."""
        found = self.names.get(id(where))
        if found is None:
            self.names[id(where)] = where, values.copy()
        else:
            found[1].update(values)
        self._ready = None

    def add(self, other: Proven) -> None:
        """Add the objects that another proof depends on."""
        for where, values in other.names.values():
            self.bind(where, values)
        self.functions |= other.functions
        self.classes |= other.classes
        self.tables |= other.tables
        self.modules |= other.modules
        self._ready = None

    def holds(self) -> bool:
        """Compare."""
        if self._ready is None:
            self._ready = _Ready(self)
        return self._ready()


class _Ready:
    """A Proven as columns. The loops over them are C's, since a proof is compared for each batch."""

    def __init__(self, proven: Proven) -> None:
        kinds: dict[Any, list[tuple[Any, str, Any]]] = {}
        for where, values in proven.names.values():
            kinds.setdefault(type(where), []).extend([(where, name, value) for name, value in values.items()])
        self._names = [(kind.get, *map(list, zip(*found, strict=True))) for kind, found in kinds.items() if found]
        functions = list(proven.functions.values())
        self._functions, codes, defaults, more = map(list, zip(*functions, strict=True)) if functions else ([],) * 4
        self._of_functions = (_CODE, codes), (_DEFAULTS, defaults)
        self._more = more
        classes = list(proven.classes.values())
        self._classes, self._orders, self._sizes = map(list, zip(*classes, strict=True)) if classes else ([],) * 3
        self._members = list(map(_members_of, self._classes))
        self._tables = [table for table, _ in proven.tables.values()]
        self._copies = [copy for _, copy in proven.tables.values()]
        self._modules = [module for module, _ in proven.modules.values()]
        self._kinds = [kind for _, kind in proven.modules.values()]

    def __call__(self) -> bool:
        """Compare."""
        return (
            all(
                all(map(operator.is_, map(get, where, names, _ABSENTS), values))
                for get, where, names, values in self._names
            )
            and all(all(map(operator.is_, map(of, self._functions), before)) for of, before in self._of_functions)
            and list(map(_KEYWORD_DEFAULTS, self._functions)) == self._more
            and all(map(operator.is_, map(_ORDER, self._classes), self._orders))
            and list(map(len, self._members)) == self._sizes
            and all(map(operator.eq, self._tables, self._copies))
            and all(map(operator.is_, map(type, self._modules), self._kinds))
        )


_CODE, _DEFAULTS, _KEYWORD_DEFAULTS = map(operator.attrgetter, ("__code__", "__defaults__", "__kwdefaults__"))
_ORDER = operator.attrgetter("__mro__")
_ABSENTS = itertools.repeat(_ABSENT)

# All that was proven when the last epoch without workers began, together.
_WATCHED: tuple[list[Proven], Proven] | None = None
_PROVEN: dict[str, Proven] = {}


class _Walk:
    """Follows the objects that can be reached from a name, and compares each function on the way."""

    def __init__(self, digests: dict[str, set[str]] | None = None) -> None:
        """With ``digests``, note digests there and compare none."""
        self.proven = Proven()
        self._digests = digests
        self._called: set[str] = set()  # names of methods that some function on the way asks for
        self._classes: dict[type, dict[str, Any]] = {}  # with the methods that were not followed yet
        self._waiting: list[types.FunctionType] = []

    def begin(self, name: str) -> None:
        """Prove the object with a name."""
        value, where, last, cls = _find(name)
        self._bind(where, last, where[last])
        if not isinstance(value, type | types.FunctionType) or f"{_owner(value)}.{value.__qualname__}" != name:
            raise Unknown(f"{name} was replaced")
        self._follow(value, name)
        self._follow(cls)
        while self._waiting or self._more_methods():
            while self._waiting:
                self._function(self._waiting.pop())
        self._tensors()
        self._attributes()

    def formats(self, opens: dict[str, Any], order: list[str]) -> None:
        """Prove that Pillow's formats are its own. The code that detects a format is not followed."""
        self.proven.tables |= {id(table): (table, table.copy()) for table in (opens, order)}
        for name, table in (("OPEN", opens), ("ID", order)):
            self._bind(vars(sys.modules["PIL.Image"]), name, table)
        modules = {"PIL.ImageFile"}
        for name, way in opens.items():
            for part in way:
                module = _owner(part)
                if part is not None and (not module.startswith("PIL.") or part is not _find(_dotted(part))[0]):
                    raise Unknown(f"Pillow opens {name} by {_dotted(part)}")
                modules.add(module if part is not None else "PIL.ImageFile")
        for name in sorted(modules):
            members = vars(sys.modules[name])
            self._members(members)
            for key, value in list(members.items()):
                self._follow(value, f"{name}.{key}")
                if isinstance(value, type) and value.__module__ == name:
                    self._class(value)

    def codecs(self) -> None:
        """Prove that Pillow decodes and encodes by its own functions. It looks them up by the names of files' tiles."""
        image = sys.modules["PIL.Image"]
        core = vars(image)["core"]
        self._bind(vars(image), "core", core)
        own = [name for name in vars(core) if name.endswith(("_decoder", "_encoder"))]
        for name in own:
            value = vars(core)[name]
            if not isinstance(value, types.BuiltinFunctionType) or value.__name__ != name:
                raise Unknown(f"PIL.Image.core.{name} was replaced")
            self._bind(vars(core), name, value)
        for table, suffix in (("DECODERS", "_decoder"), ("ENCODERS", "_encoder")):
            found = vars(image)[table]
            self._bind(vars(image), table, found)
            self.proven.tables[id(found)] = found, found.copy()
            for name, kind in found.items():
                module = _owner(kind)
                if f"{name}{suffix}" in own or not module.startswith("PIL.") or kind is not _find(_dotted(kind))[0]:
                    raise Unknown(f"Pillow has {_dotted(kind)} for {name!r} in {table}")
                self._follow(kind)

    def _attributes(self) -> None:
        """Compare values in the bodies of classes, for the names that functions on the way ask for."""
        for cls in self._classes:
            members = _members_of(cls)
            if issubclass(cls, enum.Enum):
                continue
            for name in sorted(self._called & members.keys()):
                value = members[name]
                if name.startswith("__") or isinstance(value, _BUILT_IN) or next(functions_of(value), None) is not None:
                    continue
                self._bind(members, name, value)
                full, digest = f"{_full(cls)}.{name}", f"{_ATTRIBUTE}{_hash(described(value))}"
                if self._digests is not None:
                    self._digests.setdefault(full, set()).add(digest)
                elif digest not in KNOWN.get(full, ()):
                    raise Unknown(f"{full} was changed, or is another one in {_version(full.partition('.')[0])}")

    def _tensors(self) -> None:
        """Check the methods of tensors that functions on the way use."""
        tensor: type = vars(sys.modules["torch"])["Tensor"]
        self.proven.classes[id(tensor)] = tensor, tensor.__mro__, len(vars(tensor))
        members = vars(tensor)
        for name in sorted(self._called & members.keys()):
            value = members[name]
            self._bind(members, name, value)
            for f in functions_of(value):
                check_function(f, f"torch.Tensor.{name}")
            own = isinstance(value, types.MethodDescriptorType) and value.__name__ == name
            if callable(value) and not own and next(functions_of(value), None) is None:
                raise Unknown(f"torch.Tensor.{name} was replaced")

    def _class(self, cls: type) -> _Class:
        found = _CLASSES.get(cls)
        if found is None or not found.holds():
            found = _CLASSES[cls] = _Class(cls)
        self.proven.classes[id(cls)] = cls, cls.__mro__, len(found.members)
        self._members(_members_of(cls))
        return found

    def _members(self, members: Mapping[str, Any]) -> None:
        """Note the members of a class or a module, except plain values."""
        self.proven.bind(members, {name: v for name, v in members.items() if not isinstance(v, _PLAIN)})

    def _more_methods(self) -> bool:
        """List methods that were not followed yet, and are asked for by name."""
        for cls, left in list(self._classes.items()):
            for name in [name for name in left if name in self._called or _is_special(name)]:
                value = left.pop(name)
                for f in functions_of(value):
                    if f.__qualname__ != _own_name(cls, name):
                        raise Unknown(f"{_full(cls)}.{name} was replaced by {f.__qualname__}")
                    self._follow(f)
        return bool(self._waiting)

    def _bind(self, where: Mapping[str, Any], name: str, value: Any) -> None:
        self.proven.bind(where, {name: value})

    def _follow(self, value: Any, name: str = "", depth: int = 0) -> None:
        """Check a value that a name refers to."""
        if isinstance(value, types.FunctionType):
            if id(value) in self.proven.functions:
                return
            check_function(value, name)
            more = None if value.__kwdefaults__ is None else dict(value.__kwdefaults__)
            self.proven.functions[id(value)] = value, value.__code__, value.__defaults__, more
            if _in_scope(_home(value)):
                self._waiting.append(value)
        elif isinstance(value, type):
            for base in value.__mro__:
                if _in_scope(base.__module__) and base not in self._classes:
                    self._classes[base] = self._class(base).methods.copy()
        elif isinstance(value, staticmethod | classmethod | types.MethodType):
            self._follow(value.__func__, name, depth)
        elif isinstance(value, list | tuple | dict | set) and len(value) <= _MOST and depth < _DEEPEST:
            if not isinstance(value, tuple):
                self.proven.tables[id(value)] = value, value.copy()
            for inner in (*value.keys(), *value.values()) if isinstance(value, dict) else value:
                self._follow(inner, name, depth + 1)

    def _function(self, f: types.FunctionType) -> None:
        """Follow the names in a function's code."""
        part = _PARTS.get(f)
        if part is None or self._digests is not None or not part.holds():
            part = _Part(f)
        self._called |= part.names
        self.proven.add(part.proven)
        for value, name in part.follows:
            self._follow(value, name)
        if not part.known:
            self._compare(f, part.refers)
            part.known = self._digests is None
            _PARTS[f] = part

    def _compare(self, f: types.FunctionType, refers: dict[str, Any]) -> None:
        name = f"{_owner(f)}.{f.__qualname__}"
        try:
            text = _text_digest(f.__code__, _home(f), by_file=self._digests is None)
        except (OSError, SyntaxError, LookupError) as error:
            raise Unknown(f"the source of {name} cannot be read: {error}") from None
        said = [f"{n}={described(v, settings=False)}" for n, v in sorted(refers.items())]
        said += [described(f.__defaults__), described(f.__kwdefaults__)]
        digest = f"{text}.{_hash(chr(10).join(said))}"
        if self._digests is not None:
            self._digests.setdefault(name, set()).add(digest)  # of a property, two functions have one name
            return
        known = KNOWN.get(name, ())
        if digest in known:
            return
        package = name.partition(".")[0]
        if any(text == k.partition(".")[0] for k in known):
            raise Unknown(f"something that {name} uses was replaced, or is another one in {_version(package)}")
        raise Unknown(f"{name} of {_version(package)} is not a version of it that is known")


class _Part:
    """What one function refers to. Several walks reach it, and the first one compares it with its known versions."""

    def __init__(self, f: types.FunctionType) -> None:
        """Find it, or raise Unknown."""
        self._f, self._kernels = f, _kernels(f)
        self._code, self._defaults = f.__code__, f.__defaults__
        self._more = None if f.__kwdefaults__ is None else dict(f.__kwdefaults__)
        self.names = set(_names(f.__code__))
        self.known = False
        self.proven = Proven()
        self.refers: dict[str, Any] = {}
        self.follows: list[tuple[Any, str]] = []
        # Names that a mapping does not have, or that were not looked up in it.
        self._absent: list[tuple[Mapping[str, Any], set[str]]] = []
        self._cells = _cells(f)
        own = f.__globals__
        for name in sorted(self.names):
            if name in own:
                self._refer(own, name, name, self.names)
            elif name in vars(builtins):
                self.proven.bind(own, {name: _ABSENT})
                self._refer(vars(builtins), name, name, set())
        self._absent += [(own, self.names - own.keys()), (vars(builtins), self.names - vars(builtins).keys())]
        for name, value in self._cells:
            self.refers[f"({name})"] = value
            self.follows.append((value, _dotted(f)))
        for kind, kernel in self._kernels.items():
            self.proven.bind(_registry()[f], {kind: kernel})  # type: ignore[dict-item]
            self.refers[f"kernel of {kind.__qualname__}"] = kernel
            self.follows.append((kernel, _dotted(f)))
        self._tables = Proven()
        for value in (*self.refers.values(), f.__defaults__, f.__kwdefaults__):
            self._note(value, 0)

    def holds(self) -> bool:
        """Whether the function, and the objects that its names refer to, are the same as when they were compared."""
        f = self._f
        cells = _cells(f)
        return (
            f.__code__ is self._code
            and f.__defaults__ is self._defaults
            and f.__kwdefaults__ == self._more
            and len(cells) == len(self._cells)
            and all(a == c and b is d for (a, b), (c, d) in zip(cells, self._cells, strict=True))
            and _kernels(f) == self._kernels
            and all(where.keys().isdisjoint(names) for where, names in self._absent)
            and self.proven.holds()
            and self._tables.holds()
        )

    def _refer(self, where: Mapping[str, Any], name: str, full: str, names: set[str], depth: int = 0) -> None:
        value = where[name]
        if f"{where.get('__name__')}.{name}" in LOOSE:
            return
        self.proven.bind(where, {name: value})
        self.refers[full] = value
        if isinstance(value, types.ModuleType) and depth < _DEEPEST:
            self._module(value)
            inside = names & vars(value).keys()
            self._absent.append((vars(value), names - inside))
            for inner in sorted(inside):
                if vars(value)[inner] is not value:
                    self._refer(vars(value), inner, f"{full}.{inner}", names - {name}, depth + 1)
        else:
            self.follows.append((value, f"{where.get('__name__')}.{name}"))

    def _module(self, module: types.ModuleType) -> None:
        """Check the class of a module, which decides what its attributes are."""
        kind = type(module)
        if kind is not types.ModuleType and not _is_library(kind.__module__.partition(".")[0]):
            raise Unknown(f"the module {module.__name__} has the class {_full(kind)}")
        self.proven.modules[id(module)] = module, kind

    def _note(self, value: Any, depth: int) -> None:
        """Note the tables that a description of a value contains."""
        if isinstance(value, list | tuple | dict | set) and len(value) <= _MOST and depth < _DEEPEST:
            if not isinstance(value, tuple):
                self._tables.tables[id(value)] = value, value.copy()
            for inner in (*value.keys(), *value.values()) if isinstance(value, dict) else value:
                self._note(inner, depth + 1)


class _Class:
    """A library's class that was checked."""

    def __init__(self, cls: type) -> None:
        """Check it, or raise Unknown."""
        check_class(cls)
        self._cls, self._order, self.members = cls, cls.__mro__, dict(vars(cls))
        self._functions = [f for value in self.members.values() for f in functions_of(value)]
        self._codes = [f.__code__ for f in self._functions]
        only = ONLY.get(_full(cls))
        # The members whose functions a walk may follow.
        self.methods = {n: self.members[n] for n in _methods(cls) if n not in UNUSED and (only is None or n in only)}

    def holds(self) -> bool:
        """Whether it is as when it was checked."""
        cls, now = self._cls, _members_of(self._cls)
        module = sys.modules.get(cls.__module__)
        return (
            module is not None
            and _find(_full(cls))[0] is cls
            and cls.__mro__ is self._order
            and len(now) == len(self.members)
            and all(map(operator.is_, map(now.get, self.members, _ABSENTS), self.members.values()))
            and all(map(operator.is_, map(_CODE, self._functions), self._codes))
        )


_PARTS: dict[types.FunctionType, _Part] = {}
_CLASSES: dict[type, _Class] = {}


def _cells(f: types.FunctionType) -> list[tuple[str, Any]]:
    """Return the names and values of a function's closure, without those that have no value yet."""
    found = []
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            found.append((name, cell.cell_contents))
    return found


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


_PACKAGES = tuple(name for name in SCOPE if name.endswith("."))


def _registry() -> dict[Any, dict[Any, Any]]:
    found: dict[Any, dict[Any, Any]] = vars(sys.modules.get(_KERNELS, types)).get("_KERNEL_REGISTRY", {})
    return found


def _kernels(f: types.FunctionType) -> dict[type, Any]:
    """Return the kernels that a function of torchvision's v2 calls for pictures and for tensors."""
    names = ("PIL.Image.Image", "torch.Tensor", "torchvision.tv_tensors._image.Image")
    return {kind: kernel for kind, kernel in _registry().get(f, {}).items() if _full(kind) in names}


@functools.cache
def _in_scope(module: str) -> bool:
    return module in SCOPE or module.startswith(_PACKAGES)


@functools.cache
def _members_of(cls: type) -> Mapping[str, Any]:
    return vars(cls)  # another object each time


def _is_library(package: str) -> bool:
    return package in LIBRARIES or package in sys.stdlib_module_names


def is_of_library(f: types.FunctionType) -> bool:
    """Whether a function is Python's or that of a library on the path, and not the program's."""
    return _is_library(_home(f).partition(".")[0])


def _home(f: types.FunctionType) -> str:
    """Return the module that a function was made in, whatever ``functools.wraps`` has made it say."""
    return str(f.__globals__.get("__name__"))


def _full(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _own_name(cls: type, name: str) -> str:
    """Return the qualified name of a method as its class defines it."""
    own = name.removeprefix(f"_{cls.__name__.lstrip('_')}")  # names that begin with __ are kept with it
    return ALIASES.get(f"{_full(cls)}.{name}", f"{cls.__qualname__}.{own if own.startswith('__') else name}")


def _owner(value: Any) -> str:
    return str(getattr(value, "__module__", None))


def _dotted(value: Any) -> str:
    return f"{_owner(value)}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def _find(name: str) -> tuple[Any, Mapping[str, Any], str, type | None]:
    """Return the object with a dotted name, the mapping and key that hold it, and its class if it is a method."""
    parts = name.split(".")
    for n in range(len(parts) - 1, 0, -1):
        module = sys.modules.get(".".join(parts[:n]))
        if module is None:
            continue
        where: Mapping[str, Any] = vars(module)
        cls: type | None = None
        for part in parts[n:-1]:
            inner = where.get(part)
            if not isinstance(inner, type):
                raise Unknown(f"{name} was replaced")
            cls, where = inner, _members_of(inner)
        last = parts[-1]
        if cls is not None and last.startswith("__") and not last.endswith("__"):
            last = f"_{cls.__name__.lstrip('_')}{last}"
        value = where.get(last, _ABSENT)
        if value is _ABSENT:
            raise Unknown(f"{name} is not there")
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        return value, where, last, cls
    raise Unknown(f"{name} is not there")


def functions_of(value: Any) -> Iterator[types.FunctionType]:
    """Yield the functions in an attribute of a class."""
    if isinstance(value, types.FunctionType):
        yield value
    elif isinstance(value, staticmethod | classmethod):
        yield from functions_of(value.__func__)
    elif isinstance(value, property):
        for f in (value.fget, value.fset, value.fdel):
            if f is not None:
                yield from functions_of(f)
    elif isinstance(value, functools.cached_property):
        yield from functions_of(value.func)
    elif isinstance(value, functools._lru_cache_wrapper):
        yield from functions_of(value.__wrapped__)


def _methods(cls: type) -> Iterator[str]:
    for name, value in vars(cls).items():
        if next(functions_of(value), None) is not None:
            yield name


def _names(code: types.CodeType) -> Iterator[str]:
    """Yield the names in a function's code, and in functions inside of it."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _names(const)


# --- is a function the one that its file defines? ----------------------------


class _Compiled:
    """The code in a module's file, as Python has compiled it."""

    def __init__(self, module: types.ModuleType) -> None:
        spec = module.__spec__
        loader: Any = None if spec is None else spec.loader
        self._at: dict[tuple[str, int], list[tuple[types.CodeType, str]]] = {}
        self._named: dict[str, list[types.CodeType]] = {}
        self._inside: dict[str, set[str]] = {}
        try:
            self._add(loader.get_code(module.__name__), "")
        except (AttributeError, ImportError, OSError):
            # It has no file: then none of its functions is known.
            self._at.clear()

    def _add(self, code: types.CodeType, outer: str) -> None:
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                name = f"{outer}.{const.co_name}" if outer else const.co_name
                self._at.setdefault((const.co_name, const.co_firstlineno), []).append((const, name))
                self._named.setdefault(name, []).append(const)
                self._inside.setdefault(outer, set()).add(const.co_name)
                # A function's local definitions are not attributes of anything.
                self._add(const, f"{name}.<locals>" if const.co_flags & _FUNCTION else name)

    def has(self, code: types.CodeType) -> bool:
        return any(code is c or code == c for c, _ in self._at.get((code.co_name, code.co_firstlineno), ()))

    def alone(self, name: str) -> types.CodeType | None:
        """Return the code with a qualified name, None unless there is exactly one."""
        found = self._named.get(name, ())
        return found[0] if len(found) == 1 else None

    def name(self, code: types.CodeType) -> str:
        """Return the qualified name of code, "" if other code has it, too."""
        for found, name in self._at.get((code.co_name, code.co_firstlineno), ()):
            if found == code and self.alone(name) is found:
                return name
        return ""

    def methods(self, qualname: str) -> set[str]:
        """Return the names of the functions that the body of a class defines."""
        return self._inside.get(qualname, set())


_FUNCTION = 0x02  # CO_NEWLOCALS: the code of a function, not of a class
_COMPILED: dict[str, _Compiled] = {}


def _compiled(module: types.ModuleType) -> _Compiled:
    found = _COMPILED.get(module.__name__)
    if found is None:
        found = _COMPILED[module.__name__] = _Compiled(module)
    return found


def check_function(f: types.FunctionType, name: str = "") -> None:
    """Raise Unknown unless a library's file defines the function. ``name`` is the name under which it was found."""
    module = sys.modules.get(_home(f))
    own = module is not None and vars(module) is f.__globals__ and is_of_library(f)
    if module is None or not own or not _compiled(module).has(f.__code__):
        raise Unknown(f"{name or _dotted(f)} was replaced")


def check_class(cls: type) -> None:
    """Raise Unknown unless the methods of a library's class are those that its file defines."""
    module = sys.modules.get(cls.__module__)
    if module is None or _find(_full(cls))[0] is not cls:
        raise Unknown(f"{_full(cls)} was replaced")
    for name, value in vars(cls).items():
        found = list(functions_of(value))
        for f in found:
            if _generated(f, name):
                continue
            check_function(f, f"{_full(cls)}.{name}")
        strange = callable(value) and not isinstance(value, type | _BUILT_IN)
        if not found and (strange or (isinstance(value, types.BuiltinFunctionType) and name not in UNUSED)):
            raise Unknown(f"{_full(cls)}.{name} was replaced")
    others = {name.rpartition(".")[2] for name in ALIASES if name.rpartition(".")[0] == _full(cls)}
    for name in sorted(others | set(_compiled(module).methods(cls.__qualname__))):
        value = vars(cls).get(name, vars(cls).get(f"_{cls.__name__.lstrip('_')}{name}"))
        if name.isidentifier() and not isinstance(value, type) and next(functions_of(value), None) is None:
            raise Unknown(f"{_full(cls)}.{name} was replaced")


def _generated(f: types.FunctionType, name: str) -> bool:
    """Whether a method is one that dataclasses, named tuples and enums make."""
    return f.__code__.co_filename.startswith("<") and name.startswith("_") and name in UNUSED


# --- comparing a function with its known versions ----------------------------


def _placed(module: str, name: str) -> str:
    """Return a followed object's name with its module, and any other's with its package, in which it may have moved."""
    return f"{module if _in_scope(module) else module.partition('.')[0]}:{name}"


def described(value: Any, depth: int = 0, *, settings: bool = True) -> str:
    """Return the description of a value, in a text that does not depend on Python's version.

    Without ``settings``, numbers and truth values are not told apart.
    """
    if isinstance(value, types.FunctionType):
        return _placed(_home(value), value.__qualname__)
    if isinstance(value, type):
        return _placed(_owner(value), value.__qualname__.rstrip("_"))  # NumPy has renamed bool_
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, staticmethod | classmethod | types.MethodType):
        return f"{type(value).__name__} {described(value.__func__)}"
    if isinstance(value, types.BuiltinFunctionType | types.MethodDescriptorType):
        return f"built-in {value.__name__}"
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if isinstance(value, _PLAIN):
        return repr(value) if settings or isinstance(value, str | bytes) else "a setting"
    if isinstance(value, list | tuple | dict | set | frozenset) and depth < _DEEPEST and len(value) <= _MOST:
        items = value.items() if isinstance(value, dict) else value
        parts = [described(v, depth + 1) for v in items]
        if isinstance(value, set | frozenset):
            parts.sort()
        return f"{type(value).__name__}({', '.join(parts)})"
    return f"a {type(value).__qualname__}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


_TEXTS: dict[tuple[types.CodeType, str], str] = {}


def _text_digest(code: types.CodeType, module: str, *, by_file: bool) -> str:
    """Return the digest of the text that a function's code is compiled from, as a tree without comments."""
    found = _TEXTS.get((code, module)) if by_file else None
    if found is None:
        found = _texts(module).get(_compiled(sys.modules[module]).name(code)) if by_file else None
        found = _TEXTS[code, module] = found or _hash(_tree(_definition(_source(module), code)))
    return found


@functools.cache
def _texts(module: str) -> dict[str, str]:
    """Return the texts' digests of functions by their names in a module, if it has a file of a known version."""
    return _only_texts(module) if _file_digest(module) in FILES else {}


def _only_texts(module: str) -> dict[str, str]:
    """Return the texts' digests of those of a module's functions of which one text is known."""
    texts = {n.removeprefix(f"{module}."): {k.partition(".")[0] for k in KNOWN[n]} for n in _known_in(module)}
    return {name: found.pop() for name, found in texts.items() if len(found) == 1}


def _known_in(module: str) -> list[str]:
    names = sorted(KNOWN)
    return names[bisect.bisect(names, f"{module}.") : bisect.bisect(names, f"{module}/")]  # "/" comes after "."


def _file_digest(module: str) -> str:
    """Return the digest of a module's file, and of all that is known of its functions."""
    spec: Any = sys.modules[module].__spec__
    try:
        data: bytes = spec.loader.get_data(spec.origin)
    except (AttributeError, OSError):
        return ""
    known = "".join(f"{name} {' '.join(KNOWN[name])}\n" for name in _known_in(module))
    return hashlib.sha256(known.encode() + data).hexdigest()[:12]


def files() -> set[str]:
    """Return the digests of those installed files whose functions have the known texts."""
    found = set()
    for module in filter(_known_in, filter(_in_scope, list(sys.modules))):
        compiled, texts = _compiled(sys.modules[module]), _only_texts(module)
        alone = [(text, code) for name, text in texts.items() if (code := compiled.alone(name)) is not None]
        if all(_text_digest(code, module, by_file=False) == text for text, code in alone):
            found.add(_file_digest(module))
    return found


@functools.cache
def _source(module: str) -> tuple[str, ...]:
    loader: Any = sys.modules[module].__spec__.loader  # type: ignore[union-attr]
    text = loader.get_source(module)
    if text is None:
        raise OSError("its module has no source")
    return tuple(text.splitlines())


def _definition(lines: tuple[str, ...], code: types.CodeType) -> ast.AST:
    """Return the definition that begins at a function's first line."""
    first = code.co_firstlineno - 1
    indent = len(lines[first]) - len(lines[first].lstrip())
    end = first + 1
    error: SyntaxError | None = None
    while end <= len(lines):
        # It ends before a line that is indented no deeper; there may be such lines in strings of it.
        while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent):
            end += 1
        try:
            tree = ast.parse(textwrap.dedent("\n".join(lines[first:end])))
        except SyntaxError as e:
            error = e
            end += 1
            continue
        for node in ast.walk(tree):
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if function and getattr(node, "name", "<lambda>") == code.co_name:
                return node
        end += 1
    raise error or LookupError(code.co_name)


# Fields removed from trees: annotations, and fields that only describe the use of a name.
_LEFT_OUT = {"annotation", "returns", "type_comment", "type_params", "ctx", "kind", "type_ignores"}


def _tree(node: Any) -> str:
    """Return a syntax tree as a text that all versions of Python agree on."""
    if isinstance(node, list):
        return "[" + ",".join(map(_tree, node)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = []
    for name, value in ast.iter_fields(node):
        if name in _LEFT_OUT or value is None or value == []:
            continue
        if name == "body" and isinstance(value, list):
            # Without docstrings.
            value = [v for v in value if not (isinstance(v, ast.Expr) and isinstance(v.value, ast.Constant))]
        parts.append(f"{name}={_tree(value)}")
    return f"{type(node).__name__}({','.join(parts)})"


@functools.cache
def _version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version('Pillow' if package == 'PIL' else package)}"
    except importlib.metadata.PackageNotFoundError:
        return package


def digests(names: list[str]) -> dict[str, set[str]]:
    """Return the digests of all installed functions that can be reached from names."""
    found: dict[str, set[str]] = {}
    for name in names:
        _Walk(found).begin(name)
    return found
