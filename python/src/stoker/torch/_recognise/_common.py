"""The parts that all modules of the recogniser use: reasons, and classes that only rename another one."""

from __future__ import annotations

# The step that always helps.
_PACK = 'stoker.pack(dataset, "out"), then stoker.Loader("out", batch_size=N); Python functions go into its map='


class Refusal(str):
    """Why a loader runs as Python."""

    step = _PACK  # what to type next

    @classmethod
    def of(cls, why: str, step: str = "") -> Refusal:
        """Return a reason with its next step."""
        made = cls(why)
        made.step = step or _PACK
        return made


# The largest depth of nested datasets.
DEEP = 8

# Attributes that Python itself writes into a class without a body. They change nothing.
_NOTHING = {
    "__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__annotate__",
    "__annotate_func__", "__annotations_cache__", "__firstlineno__", "__static_attributes__", "__parameters__",
    "__orig_bases__",
}  # fmt: skip


def meant(cls: type) -> type:
    """Return the class itself, or its only base if the class adds nothing except a name."""
    while len(cls.__bases__) == 1 and type(cls) is type(cls.__bases__[0]) and vars(cls).keys() <= _NOTHING:
        cls = cls.__bases__[0]
    return cls
