"""The values of ``transforms=``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from ._described import Described, choice
from ._errors import ConfigError
from ._pad import Padded
from ._transform import Transform


@dataclass(frozen=True, repr=False, eq=False)
class Field(Described):
    """An array of the batch that is made from a stored field.

    Use it in ``transforms=`` if one stored field feeds several arrays, or if an array needs an option of its own::

        transforms={
            "global": stoker.Field("image", [stoker.transforms.RandomResizedCrop(224)]),
            "local": stoker.Field("image", [stoker.transforms.RandomResizedCrop(96, scale=(0.05, 0.4))]),
        }

    Args:
        source: name of the stored field.
        transforms: the transforms of each image, mask or array, in order, also torchvision's or a ``Compose`` of them.
            Boxes and key points follow the transforms of their image. Their own list is for transforms of boxes alone,
            such as ``SanitizeBoundingBoxes``, and runs afterwards. Other fields take none. ``stoker.Padded`` may come
            last.
        layout: memory layout of the images: ``"NHWC"`` (default for NumPy), ``"NCHW"`` (default for torch), or, for
            torch, ``"channels_last"``: shape NCHW over memory NHWC.
        mask: the image is a mask of class numbers: one channel, moved by geometric transforms with nearest
            interpolation, never changed in value. Fields that are stored as masks are masks by default, with rows of
            shape ``[H, W]``.
        follow: name of another array whose random numbers this one uses, so that a mask moves with its image. Both need
            the same transforms at the same places of their lists. By default stored masks follow the first image. So do
            boxes and key points, which need no transforms for that.
        mode: the mode of decoded images, in Pillow's terms: ``"RGB"`` (the default), ``"RGBA"``, ``"L"`` (gray) or
            ``"LA"`` (gray with alpha). Images without alpha are opaque. Masks have no mode.
        depth: bits of a value: 8 (the default, ``uint8``), 16 (``uint16``: images and masks of 16 bits unchanged,
            images of 8 bits times 257) or 32 (``float32``: the numbers in the file, such as those of float TIFFs).
    """

    __module__ = "stoker"

    source: str
    transforms: Transform | Padded | Sequence[Transform | Padded | Callable[..., Any]] | Callable[..., Any] = ()
    _: KW_ONLY
    layout: Literal["NHWC", "NCHW", "channels_last"] | None = None
    mask: bool = False
    follow: str | None = None
    mode: Literal["L", "LA", "RGB", "RGBA"] | None = None
    depth: Literal[8, 16, 32] | None = None
    ops: tuple[Transform, ...] = field(init=False)
    pad: Padded | None = field(init=False)

    def __post_init__(self) -> None:
        # The engine checks the other options.
        if self.layout is not None:
            choice("layout", self.layout, ("NHWC", "NCHW", "channels_last"))
        transforms, pad = _padded(self.transforms)
        ops, gray = as_transforms(transforms, self.source)
        mode = "L" if gray and self.mode is None and not self.mask else self.mode
        for name, value in {"ops": ops, "pad": pad, "mode": mode, "mask": bool(self.mask)}.items():
            object.__setattr__(self, name, value)

    @property
    def is_plain(self) -> bool:
        """Whether the field comes as stored, except for ``pad``."""
        return not (self.ops or self.mask or self.layout or self.follow or self.mode or self.depth)

    def to_config(self, name: str, layout: str) -> dict[str, Any]:
        """Return the form that the engine reads."""
        layout = "NCHW" if (self.layout or layout) == "NCHW" else "NHWC"
        config = {"name": name, "field": self.source, "ops": [t.to_config() for t in self.ops], "layout": layout}
        given = {"mask": self.mask or None, "follow": self.follow, "mode": self.mode, "depth": self.depth}
        return config | {option: value for option, value in given.items() if value is not None}


# Transforms of torchvision and timm may stand where Stoker's do.
FieldSpec = Transform | Padded | Sequence[Transform | Padded | Callable[..., Any]] | Callable[..., Any] | Field
_LIBRARIES = ("torchvision.", "timm.", "torch.nn.")


def _is_foreign(value: object) -> bool:
    return not isinstance(value, type) and any(c.__module__.startswith(_LIBRARIES) for c in type(value).__mro__)


def as_transforms(value: object, name: str) -> tuple[tuple[Transform, ...], bool]:
    """Check a list of transforms, and return whether it makes images gray; a single one stands for a list of one."""
    if isinstance(value, Transform) or _is_foreign(value):
        value = (value,)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise ConfigError(f"transforms[{name!r}] is {value!r}; it must be a list of transforms or a stoker.Field")
    for t in value:
        if isinstance(t, type) and (issubclass(t, Transform) or t.__module__.startswith(_LIBRARIES)):
            raise ConfigError(f"transforms[{name!r}]: {t.__name__} is a class; write {t.__name__}(...)")
        if not isinstance(t, Transform) and not _is_foreign(t):
            raise ConfigError(
                f"transforms[{name!r}]: {t!r} is not a transform of stoker or torchvision; the engine runs outside "
                "Python, so Python functions go into map= or batch_map="
            )
    if all(isinstance(t, Transform) for t in value):
        return tuple(value), False
    return _translated(value, name)


def _translated(transforms: Sequence[Any], name: str) -> tuple[tuple[Transform, ...], bool]:
    """Return what a list with transforms of torchvision means for the engine."""
    from . import transforms as own
    from ._surface import ELSEWHERE
    from .torch._recognise._library import Unknown
    from .torch._recognise._transforms import translate

    try:
        program = translate(transforms)
    except Unknown as reason:
        known = {n: f"write stoker.transforms.{n}(...)" for n in own.__all__}
        names = [n for t in _parts(transforms) if (n := type(t).__name__) in str(reason)]
        twins = [step for n in names if (step := known.get(n) or ELSEWHERE.get(n))]
        step = next(iter(twins), reason.step or "Python functions go into map= or batch_map=")
        raise ConfigError(f"transforms[{name!r}]: {reason}; {step}") from None
    return tuple(program.ops), program.mode == "L"


def _parts(transforms: Sequence[Any]) -> list[Any]:
    parts: list[Any] = []
    for t in transforms:
        inner = getattr(t, "transforms", None)
        parts += _parts(inner) if isinstance(inner, Sequence) else [t]
    return parts


def _padded(value: Any) -> tuple[Any, Padded | None]:
    """Return a list without the padding at its end, and the padding."""
    if isinstance(value, Padded):
        return (), value
    if isinstance(value, Sequence) and value and isinstance(value[-1], Padded):
        return value[:-1], value[-1]
    return value, None


def parse_transforms(transforms: Mapping[str, FieldSpec] | None) -> dict[str, Field]:
    """Return the arrays that ``transforms=`` names."""
    if transforms is None:
        return {}
    if not isinstance(transforms, Mapping):
        raise ConfigError(
            f'transforms={transforms!r}; it must be a dict such as {{"image": [stoker.transforms.CenterCrop(224)]}}'
        )
    out = {}
    for name, value in transforms.items():
        if not isinstance(name, str) or not name:
            raise ConfigError(f"transforms: the name {name!r} must be a string")
        if name == "index":
            raise ConfigError("transforms: 'index' is the name of the record numbers, which each batch has")
        out[name] = value if isinstance(value, Field) else Field(name, value)
    return out


def outputs(fields: Mapping[str, Field], layout: str) -> list[dict[str, Any]]:
    """Return the arrays that the engine makes of images, masks and sound, as it reads them."""
    return [f.to_config(name, layout) for name, f in fields.items() if not (f.pad and f.is_plain)]


def pads(fields: Mapping[str, Field]) -> dict[str, Any]:
    """Return what the engine is to fill up, by array."""
    return {name: f.pad.to_config() for name, f in fields.items() if f.pad}


def check_layouts(fields: Mapping[str, Field], output: str, mapped: bool) -> None:
    """Refuse a layout that only batches of torch have."""
    for name, f in fields.items():
        if f.layout == "channels_last" and (output != "torch" or mapped):
            why = 'with NumPy it is called "NHWC"' if not mapped else "map= and batch_map= decide it themselves"
            raise ConfigError(f'transforms[{name!r}]: layout="channels_last" is for output="torch"; {why}')
