"""Programs that try to make stoker.torch differ from torch, silently or not.

A program is a line of text: a dataset, a transform, an order, and changes, each at a moment of the training loop:

    data=folder transform=resize order=gen workers=2 epochs=2 reverse@0.2#5 break@0.3

``reverse@0.2#5`` calls ``CHANGES["reverse"]`` with the number 5 in epoch 0 after 2 batches. Moments are ``start``
(before the loader), ``made`` (before its first iterator), ``E.K`` (epoch E, after K batches) and ``E.end``. ``run``
does what the text says with torch's DataLoader or with one of Stoker's, and returns a log of batches, random states
and exceptions. ``compare`` compares two logs. ``generate`` makes a program out of a seed, ``shrink`` drops words
while a program still differs.

    python tests/adversary.py --seconds 600 --first 1000   # programs of new seeds, differences as they are found
    python tests/adversary.py --seed 17                    # that of one seed
    python tests/adversary.py 'data=cifar roll@0.end#3'    # a text
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import os
import pickle
import random
import re
import shutil
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as tud
from adversary_changes import CHANGES, Change, applies
from adversary_worlds import COLLATES, DATA, ORDERS, TRANSFORMS, World, transforms_for, write_files
from torch.utils.data import dataloader

import stoker.torch
from stoker import _run

# A worker that failed keeps its queue open, and torch waits this long for it: 5 seconds each.
tud._utils.MP_STATUS_CHECK_INTERVAL = 0.5

# The class, and the loader that `stoker run` installs, with or without first batches by torch.
KINDS = ("dropin", "run", "first")


@dataclass(frozen=True)
class Program:
    """The choices that a program's text describes."""

    data: str = "folder"
    transform: str = "resize"
    order: str = "seq"
    collate: str = "default"
    kind: str = "dropin"  # which of ours is compared, of KINDS
    workers: int = 0
    batch: int = 3
    epochs: int = 2
    persistent: int = 0
    cache: int = 0
    errors: int = 0  # how many of them the loop catches, and goes on
    changes: tuple[tuple[str, str, int], ...] = field(default=())  # name, moment, number

    def __str__(self) -> str:
        words = [f"{k}={v}" for k, v in vars(self).items() if k != "changes" and v != getattr(Program, k)]
        return " ".join([*words, *(f"{c}@{at}" + (f"#{n}" if n else "") for c, at, n in self.changes)]) or "data=folder"


def parse(text: str) -> Program:
    """Return the program of a text."""
    values: dict[str, Any] = {}
    changes = []
    for word in text.split():
        name, at, moment = word.partition("@")
        if at:
            moment, _, number = moment.partition("#")
            if name != "break" and name not in CHANGES:
                raise ValueError(f"{name} is not a change")
            changes.append((name, moment, int(number or 0)))
        else:
            name, _, value = word.partition("=")
            values[name] = type(getattr(Program, name))(value)
    return Program(**values, changes=tuple(changes))


# --- run ---------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return a copy of a batch as a tree of tuples, which holds everything that is compared.

    The strides of tensors that were not stacked are not: see docs/how-to/run.md.
    """
    kind = type(value).__qualname__
    if isinstance(value, torch.Tensor):
        array = value.detach().as_subclass(torch.Tensor).cpu()
        strides = (
            () if array.dim() == 3 else tuple(s for s, n in zip(value.stride(), value.shape, strict=True) if n != 1)
        )
        return ("tensor", kind, str(value.dtype), strides), array.to(torch.float64).numpy().copy()
    if isinstance(value, np.ndarray):
        return ("array", kind, str(value.dtype), value.strides), value.astype(np.float64)
    if isinstance(value, dict):
        return "dict", kind, [(k, plain(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return "list", kind, [plain(v) for v in value]
    if hasattr(value, "tobytes") and hasattr(value, "mode"):
        return ("picture", kind, value.mode, value.size), np.asarray(value).astype(np.float64)
    return "value", kind, repr(value)


def states(world: World) -> dict[str, str]:
    """Return texts that differ if the states of random numbers differ."""
    every = {
        "random": pickle.dumps(random.getstate()),
        "numpy": pickle.dumps(np.random.get_state()),
        "torch": torch.get_rng_state().numpy().tobytes(),
        "generator": world.generator.get_state().numpy().tobytes(),
        "sampler": pickle.dumps(world.numbers.getstate()),
    }
    return {name: hashlib.blake2b(state, digest_size=8).hexdigest() for name, state in every.items()}


@contextlib.contextmanager
def taken_over(first: int) -> Iterator[type]:
    """Have torch's class taken over as in a program that ``stoker run`` runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(_run.VARIABLE, f'{{"first": {first}}}')
        patch.setattr(_run, "_WORTH", 1)
        patch.setattr(_run, "atexit", types.SimpleNamespace(register=lambda *_: None))
        patch.setattr(dataloader.DataLoader, "_get_iterator", dataloader.DataLoader._get_iterator)
        _run.install(dataloader)
        yield dataloader.DataLoader


@contextlib.contextmanager
def class_of(kind: str) -> Iterator[Any]:
    """Give the class of loaders of a kind."""
    if kind in ("run", "first"):
        with taken_over(2 if kind == "first" else 0) as taken:
            yield taken
    else:
        yield tud.DataLoader if kind == "torch" else stoker.torch.DataLoader


@contextlib.contextmanager
def _alone(program: Program, folder: Path) -> Iterator[World]:
    """Make a world. Afterwards restore the state of this process."""
    before = Path.cwd(), random.getstate(), np.random.get_state(), torch.get_rng_state()
    shutil.rmtree(folder, ignore_errors=True)
    # The files of both runs have the same names, and other inodes.
    shutil.copytree(_template(), folder)
    gc.freeze()  # _close then collects what the program has made, and need not look at all modules
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setenv("STOKER_CACHE", "auto" if program.cache else "off")
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        try:
            yield World(folder, patch, stack)
        finally:
            os.chdir(before[0])
            random.setstate(before[1])
            np.random.set_state(before[2])
            torch.set_rng_state(before[3])


def run(program: Program, kind: str, folder: Path) -> list[Any]:
    """Run a program with a kind of loader, and return the log of events."""
    log: list[Any] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with _alone(program, folder) as world, class_of(kind) as loaders:
            try:
                _run_in(world, program, loaders, log)
            except Exception as error:
                log.append(("error", type(error).__name__, str(error)[:300]))
            _close(world)
    return [*log, ("warned", [str(w.message) for w in caught if "stoker" in f"{w.filename} {w.message}"])]


def _run_in(world: World, program: Program, loaders: Any, log: list[Any]) -> None:
    world.dataset = DATA[program.data].make(world, TRANSFORMS[program.transform].make)
    _change(world, program, "start", log)
    more: dict[str, Any] = ORDERS[program.order](world, program.batch)
    if program.collate != "default":
        more["collate_fn"] = COLLATES[program.collate]
    if program.workers:
        more.update(num_workers=program.workers, persistent_workers=bool(program.persistent))
    world.loader = loaders(world.dataset, **more)
    _change(world, program, "made", log)
    for epoch in range(program.epochs):
        log.append(("epoch", epoch))
        try:
            _epoch(world, program, epoch, log)
        except Exception as error:
            log.append(("error", type(error).__name__, str(error)[:300]))
        log.append(("states", states(world)))
        log.append(("said", _explained(world)))
        _change(world, program, f"{epoch}.end", log)
    log.append(("kept", [plain(b) for b in world.kept]))


def _epoch(world: World, program: Program, epoch: int, log: list[Any]) -> None:
    iterator = world.iterator = iter(world.loader)
    left = program.errors
    _change(world, program, f"{epoch}.0", log)
    for count in range(1, 100):
        if ("break", f"{epoch}.{count - 1}") in ((c, at) for c, at, _ in program.changes):
            return
        try:
            batch = next(iterator, world)
        except Exception as error:
            left -= 1
            if left < 0:
                raise
            log.append(("error", type(error).__name__, str(error)[:300]))
            continue
        if batch is world:
            return
        log.append(("batch", plain(batch)))
        log.append(("states", states(world)))
        world.batch = batch
        _change(world, program, f"{epoch}.{count}", log)
        world.batch = batch = None


def _change(world: World, program: Program, moment: str, log: list[Any]) -> None:
    for name, at, number in program.changes:
        if at == moment and name != "break":
            try:
                CHANGES[name].do(world, number)
            except Exception as error:
                log.append(("change", name, type(error).__name__))


def _explained(world: World) -> str:
    loader: Any = world.loader
    way = getattr(loader, "_stoker_path", None)
    rows = [] if way is None else way.rows(loader)
    taken = tud.DataLoader._get_iterator.__closure__  # of `stoker run`
    if taken and way is None:
        seen = taken[0].cell_contents.of.get(loader)
        rows = [] if seen is None else seen[0].rows
    python = not rows or rows[0].part == "all" or "any Python" in rows[0].why or "workers" in rows[0].where
    return " | ".join([f"{'Python' if python else 'recognised'}", *(f"{r.part}: {r.where}: {r.why}" for r in rows)])


def _close(world: World) -> None:
    """Stop the processes of loaders now, not when the collector does it."""
    way = getattr(world.loader, "_stoker_path", None)
    plan = getattr(way, "plan", None)
    world.loader = world.iterator = None
    if plan is not None:
        plan.close()
    gc.collect()


_TEMPLATES: list[tempfile.TemporaryDirectory[str]] = []


def _template() -> Path:
    if not _TEMPLATES:
        _TEMPLATES.append(tempfile.TemporaryDirectory(prefix="stoker-adversary-"))
        write_files(Path(_TEMPLATES[0].name) / "data")
    return Path(_TEMPLATES[0].name) / "data"


# --- compare -----------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """The first difference between two logs."""

    what: str
    silent: bool  # no exception, no warning, and explain() says engine
    said: str

    def __str__(self) -> str:
        return f"{'SILENT' if self.silent else 'loud'}: {self.what}\n  explain(): {self.said}"


def compare(program: Program, theirs: list[Any], ours: list[Any]) -> Difference | None:
    """Return the first difference of two logs."""
    what, at = _different(program, theirs[:-1], ours[:-1])
    if not what:
        return None
    warned, said = ours[-1][1], next((e[1] for e in ours[at:] if e[0] == "said"), "")
    loud = bool(warned) or ours[min(at, len(ours) - 2)][0] == "error" or said.startswith("Python")
    return Difference(what, not loud, said + (f" warned: {warned}" if warned else ""))


def _different(program: Program, theirs: list[Any], ours: list[Any]) -> tuple[str, int]:
    """Return the first difference of two logs ("" for none) and its location."""
    where, at, epoch = "", -1, 0
    for at, (a, b) in enumerate(zip(theirs, ours, strict=False)):
        if a[0] == "epoch":
            where, epoch = f"epoch {a[1]}", a[1]
        if what := _entries_differ(program, epoch, a, b):
            return f"{where}, entry {at}: {what}", at
    if len(theirs) == len(ours):
        return "", at
    longer, name = (theirs, "torch") if len(theirs) > len(ours) else (ours, "ours")
    return f"{where}: {name} goes on with {_short(longer[at + 1])}", at


def _entries_differ(program: Program, epoch: int, a: Any, b: Any) -> str:
    if a[0] != b[0]:
        return f"torch {_short(a)}, ours {_short(b)}"
    if a[0] == "states":
        unlike = [k for k in a[1] if k not in _not_compared(program, epoch) and a[1][k] != b[1][k]]
        return f"states of {', '.join(unlike)}" if unlike else ""
    if a[0] == "error":
        return "" if a[1] == b[1] else f"torch raises {a[1:]}, ours {b[1:]}"
    if a[0] in ("batch", "kept"):
        found = _unlike(a[1], b[1], 1.02 if _is_coarse(program) else 1e-3)
        return f"{a[0]} {found}" if found else ""
    return "" if a == b or a[0] == "said" else f"torch {_short(a)}, ours {_short(b)}"


def _not_compared(program: Program, epoch: int) -> set[str]:
    """Return states that differ by design (docs/how-to/torch.md) in an epoch and after it."""
    return {"torch", "random", "numpy"} if epoch >= _first_without_workers(program) and _draws(program) else set()


def _first_without_workers(program: Program) -> float:
    """Return the first epoch that torch makes in the process of the loop."""
    if program.workers == 0:
        return 0
    moments = [at for name, at, n in program.changes if name == "loader-workers" and n % 2 == 0]
    epochs = [0 if at in ("start", "made") else int(at.partition(".")[0]) + 1 for at in moments]
    return min(epochs, default=float("inf"))


def _draws(program: Program) -> bool:
    """Whether torch may draw random numbers for transforms."""
    names = {program.transform, *(c.draws for c in _changes(program))}
    return any(TRANSFORMS[name].draws for name in names if name)


def _is_coarse(program: Program) -> bool:
    """Whether pixels may be off by one level."""
    return not TRANSFORMS[program.transform].exact or any(c.coarse for c in _changes(program))


def _changes(program: Program) -> list[Change]:
    return [CHANGES[name] for name, _, _ in program.changes if name != "break"]


def _unlike(a: Any, b: Any, close: float, path: str = "") -> str | None:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.shape != b.shape:
            return f"{path} shapes {a.shape} and {b.shape}"
        # Values above 8 are levels of 255, or close to them. Others are compared in units of at least a tenth of the
        # spread.
        scale = close if a.size and np.nanmax(np.abs(a), initial=0) > 8 else close / 255 * 10
        if a.size and not np.allclose(a, b, rtol=0, atol=scale, equal_nan=True):
            return f"{path} values up to {np.nanmax(np.abs(a - b)):.4g}"
        return None
    if type(a) is not type(b):
        return f"{path} {_short(a)} and {_short(b)}"
    if isinstance(a, list | tuple):
        if len(a) != len(b):
            return f"{path} lengths {len(a)} and {len(b)}"
        return next(
            (d for i, (x, y) in enumerate(zip(a, b, strict=True)) if (d := _unlike(x, y, close, f"{path}.{i}"))), None
        )
    return None if a == b else f"{path} {_short(a)} and {_short(b)}"


def _short(value: Any) -> str:
    return " ".join(repr(value).split())[:160]


def like(difference: Difference | None) -> str:
    """Return a text that is equal for differences of one kind."""
    return "" if difference is None else f"{difference.silent} {re.sub('[0-9.]+', '', difference.what)[:60]}"


def check(program: Program, folder: Path) -> Difference | None:
    """Run a program both ways and return how they differ."""
    theirs = run(program, "torch", folder)
    return compare(program, theirs, run(program, program.kind, folder))


# --- generate ----------------------------------------------------------------


def generate(seed: int) -> Program:
    """Return the program of a seed."""
    rng = random.Random(f"stoker {seed}")
    data = rng.choice(list(DATA))
    workers = rng.choice((0, 0, 0, 2))
    epochs = rng.choice((2, 2, 3))
    program = Program(
        data=data,
        transform=rng.choice(transforms_for(data)),
        order=rng.choice(["seq", "shuffle", "gen", *ORDERS]),
        collate=rng.choice(["default"] * 4 + list(COLLATES)),
        kind=rng.choice(("dropin", "dropin", "dropin", "run", "first")),
        workers=workers,
        batch=rng.choice((2, 3, 5)),
        epochs=epochs,
        persistent=int(workers > 0 and rng.random() < 0.3),
        cache=int(rng.random() < 0.2),
        errors=int(rng.random() < 0.3) * 3,
    )
    known = [name for name in CHANGES if applies(name, program)]
    if program.transform == "random-crop":  # which draws nothing only if the crop before it has its size
        known = [name for name in known if name not in ("crop-size", "crop-int")]
    changes = [
        (rng.choice(known), _moment(rng, epochs), rng.randrange(100)) for _ in range(rng.choice((1, 1, 2, 2, 3, 4)))
    ]
    if rng.random() < 0.2:
        changes.append(("break", f"{rng.randrange(epochs)}.{rng.randrange(1, 4)}", 0))
    good = tuple(c for c in changes if c[0] == "break" or CHANGES[c[0]].allowed(program, c[1]))
    program = replace(program, changes=good)
    if data == "own":  # whose first epoch runs in Python
        program = replace(program, epochs=3)
    without = _first_without_workers(program) < program.epochs
    if without and _draws(program) and program.order in ("shuffle", "drop", "default-gen"):
        return replace(program, order="gen")  # whose numbers the transforms do not draw from
    return program


def _moment(rng: random.Random, epochs: int) -> str:
    epoch = rng.randrange(epochs)
    return rng.choice(("start", "made", f"{epoch}.{rng.randrange(4)}", f"{epoch}.{rng.randrange(4)}", f"{epoch}.end"))


def shrink(program: Program, differs: Callable[[Program], bool]) -> Program:
    """Return the smallest program that still differs: changes are dropped, and the rest is simplified."""
    plainer = [
        {k: getattr(Program, k)}
        for k in ("kind", "cache", "errors", "persistent", "collate", "order", "workers", "epochs")
    ]
    again = True
    while again:
        again = False
        fewer = [
            replace(program, changes=program.changes[:i] + program.changes[i + 1 :])
            for i in range(len(program.changes))
        ]
        for candidate in [*fewer, *(replace(program, **p) for p in plainer)]:
            if candidate != program and differs(candidate):
                program, again = candidate, True
                break
    return program


def smaller(program: Program, difference: Difference, folder: Path) -> Program:
    """Return the smallest program that differs as this one does."""
    return shrink(program, lambda p: like(check(p, folder)) == like(difference))


# --- by hand -----------------------------------------------------------------


def _main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("texts", nargs="*", help="programs")
    parser.add_argument("--seed", type=int, action="append", default=[], help="the program of a seed")
    parser.add_argument("--seconds", type=float, default=0, help="programs of new seeds for so long")
    parser.add_argument("--first", type=int, default=1000, help="the first of those seeds")
    parser.add_argument("--no-shrink", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("STOKER_CACHE_DIR", tempfile.mkdtemp(prefix="stoker-adversary-cache-"))
    folder = Path(tempfile.mkdtemp(prefix="stoker-adversary-run-")) / "files"
    gc.collect()
    gc.freeze()
    tried = found = 0
    for name, program in _programs(options):
        tried += 1
        difference = check(program, folder)
        if difference is None:
            continue
        found += 1
        print(f"{name}: {program}\n  {difference}", flush=True)
        if program.changes and not options.no_shrink:
            small = smaller(program, difference, folder)
            if small != program:
                print(f"  smaller: {small}\n  {check(small, folder)}", flush=True)
    print(f"{tried} programs, {found} differences")
    return 1 if found else 0


def _programs(options: argparse.Namespace) -> Iterator[tuple[str, Program]]:
    yield from (("text", parse(text)) for text in options.texts)
    yield from ((f"seed {seed}", generate(seed)) for seed in options.seed)
    end, seed = time.monotonic() + options.seconds, options.first
    while time.monotonic() < end:
        yield f"seed {seed}", generate(seed)
        seed += 1


if __name__ == "__main__":
    sys.exit(_main())
