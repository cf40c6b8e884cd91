"""Which part of each global batch this process gets."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from ._errors import ConfigError


def rank_and_world(rank: int | None, world_size: int | None, env: Mapping[str, str] | None = None) -> tuple[int, int]:
    """Return (rank, world size): as given, or from torch.distributed, torchrun or Slurm, or (0, 1)."""
    if (rank is None) != (world_size is None):
        given, missing = ("rank", "world_size") if world_size is None else ("world_size", "rank")
        raise ConfigError(f"{given}= was given without {missing}=; give both or neither")
    if rank is None or world_size is None:
        rank, world_size = _detect(os.environ if env is None else env)
    if world_size < 1 or not 0 <= rank < world_size:
        raise ConfigError(f"rank={rank} of world_size={world_size}; ranks go from 0 to world_size - 1")
    return rank, world_size


def local_world_size(env: Mapping[str, str] | None = None) -> int:
    """Return how many ranks torchrun has started on this machine, or 0: the engine looks further."""
    try:
        return max(0, int((os.environ if env is None else env).get("LOCAL_WORLD_SIZE", "0")))
    except ValueError:
        return 0


def _detect(env: Mapping[str, str]) -> tuple[int, int]:
    # An initialised process group is the truth, whatever the environment says.
    torch_distributed: Any = sys.modules.get("torch.distributed")
    if torch_distributed is not None and torch_distributed.is_available() and torch_distributed.is_initialized():
        return torch_distributed.get_rank(), torch_distributed.get_world_size()
    if "RANK" in env and "WORLD_SIZE" in env:
        return _number(env, "RANK"), _number(env, "WORLD_SIZE")
    # A batch script that does not use srun has SLURM_PROCID=0 and SLURM_NTASKS=n as well, but is
    # one process: only the tasks of a step have SLURM_STEP_ID.
    task = "SLURM_STEP_ID" in env or "SLURM_JOB_ID" not in env
    if "SLURM_PROCID" in env and task:
        for total in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"):
            if total in env:
                return _number(env, "SLURM_PROCID"), _number(env, total)
    return 0, 1


def _number(env: Mapping[str, str], name: str) -> int:
    try:
        return int(env[name])
    except ValueError:
        raise ConfigError(f"the environment variable {name} is {env[name]!r}, not a whole number") from None
