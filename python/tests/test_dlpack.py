"""Arrays of a batch in other libraries, without a copy: sharing, writing and lifetime."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_device import Fake

import stoker
from stoker import transforms as T

torch = pytest.importorskip("torch")
Make = Callable[..., stoker.Loader]
OPS = {"image": [T.RandomCrop(24)]}


def pointer(x: Any) -> int:
    return int(x.__array_interface__["data"][0]) if isinstance(x, np.ndarray) else int(x.data_ptr())


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_memory_is_shared(make: Make, photos: Path, output: str) -> None:
    for batch in make(photos, 16, output=output, transforms=OPS):
        for array in (batch.image, batch.label, batch.index):
            assert array.__dlpack_device__()[0] == 1  # the CPU
            for library in (np, torch):
                shared = library.from_dlpack(array)
                assert pointer(shared) == pointer(array)
                assert np.array_equal(np.asarray(shared), np.asarray(array))
        torch.from_dlpack(batch.image)[0] = 7  # it may be written to
        assert (np.asarray(batch.image)[0] == 7).all()


def test_memory_is_the_batchs_until_the_last_user_is_gone(make: Make, photos: Path) -> None:
    loader = make(photos, 16, limits=stoker.Limits(prefetch=3), transforms=OPS)
    batches = iter(loader)
    batch = next(batches)
    kept = torch.from_dlpack(batch.image)
    want = kept.clone()
    del batch
    gc.collect()
    assert loader.stats()["held"] == 1
    while next(batches, None) is not None:
        assert torch.equal(kept, want)
    del kept
    gc.collect()
    assert loader.stats()["held"] == 0


@pytest.mark.usefixtures("impatient")
def test_too_many_are_copies(make: Make, photos: Path) -> None:
    want = [
        torch.from_dlpack(batch.image).clone()
        for batch in make(photos, 8, limits=stoker.Limits(prefetch=3), transforms=OPS)
    ]
    with pytest.warns(RuntimeWarning, match="hint: keep .copy"):
        kept = [
            torch.from_dlpack(batch.image)
            for batch in make(photos, 8, limits=stoker.Limits(prefetch=3), transforms=OPS)
        ]
    assert len(kept) == len(want) > 3
    assert all(torch.equal(a, b) for a, b in zip(kept, want, strict=True))


def test_ragged_rows_and_other_types(make: Make, tmp_path: Path) -> None:
    lines = [f'{{"tokens": {list(range(i % 5))}, "x": {i}, "y": {i / 2}}}\n' for i in range(20)]
    (tmp_path / "x.jsonl").write_text("".join(lines))
    for batch in make(f"{tmp_path / 'x.jsonl'}?tokens:ragged&x:int&y:float", 6):
        for array in (batch.tokens.values, batch.tokens.offsets, batch.x, batch.y):
            assert pointer(torch.from_dlpack(array)) == pointer(array)


def test_of_a_device(make: Make, photos: Path, fake_device: Fake) -> None:
    """Data on a device is a tensor of its own there and holds nothing of the ring."""
    loader = make(photos, 16, device="cuda", limits=stoker.Limits(prefetch=3), transforms=OPS)
    kept = [torch.from_dlpack(batch.image) for batch in loader]
    plain = make(photos, 16, output="torch", transforms=OPS)
    assert all(torch.equal(a, b.image) for a, b in zip(kept, plain, strict=True))


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_jax(binary: str, photos: Path) -> None:
    """In a process of its own: after JAX has started, later tests may not fork."""
    import subprocess
    import sys

    code = (
        "import sys, numpy as np, jax.dlpack, stoker\n"
        "loader = stoker.Loader(sys.argv[1], 16, transforms={'image': [stoker.transforms.RandomCrop(24)]})\n"
        "for batch in loader:\n"
        "    x = jax.dlpack.from_dlpack(batch.image)\n"
        "    assert x.unsafe_buffer_pointer() == batch.image.ctypes.data\n"
        "    assert np.array_equal(np.asarray(x), batch.image)\n"
        "print('good')\n"
    )
    command = [sys.executable, "-c", code, str(photos)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "good\n", done.stderr
