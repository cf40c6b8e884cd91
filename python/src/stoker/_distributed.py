"""The part of each global batch that this process gets."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from ._errors import ConfigError, warn

# The variables that launchers set: their name, the rank, the number of ranks, and those on this machine.
_LAUNCHERS = (
    ("torchrun", ("RANK",), ("WORLD_SIZE",), "LOCAL_WORLD_SIZE"),
    ("Open MPI", ("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",), "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MVAPICH", ("MV2_COMM_WORLD_RANK",), ("MV2_COMM_WORLD_SIZE",), "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("Spectrum MPI", ("JSM_NAMESPACE_RANK",), ("JSM_NAMESPACE_SIZE",), "JSM_NAMESPACE_LOCAL_SIZE"),
    ("MPI (PMI)", ("PMI_RANK",), ("PMI_SIZE",), "MPI_LOCALNRANKS"),
    ("Horovod", ("HOROVOD_RANK",), ("HOROVOD_SIZE",), "HOROVOD_LOCAL_SIZE"),
    ("Flux", ("FLUX_TASK_RANK",), ("FLUX_JOB_SIZE",), ""),
    ("Slurm", ("SLURM_PROCID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ""),
    # PMIx has no variable for the number of ranks. Its launchers set others as well, except for a few.
    ("MPI (PMIx)", ("PMIX_RANK",), ("PMIX_SIZE",), ""),
    ("PALS", ("PALS_RANKID",), ("PALS_SIZE",), ""),
    ("ALPS", ("ALPS_APP_PE",), (), ""),
)


def found_rank(rank: int | None, world_size: int | None, env: Mapping[str, str] | None = None) -> tuple[int, int, str]:
    """Return (rank, world size, source of these values)."""
    if (rank is None) != (world_size is None):
        given, missing = ("rank", "world_size") if world_size is None else ("world_size", "rank")
        raise ConfigError(f"{given}= was given without {missing}=; give both or neither")
    origin = "the arguments"
    if rank is None or world_size is None:
        rank, world_size, origin = _detect(os.environ if env is None else env)
    if world_size < 1 or not 0 <= rank < world_size:
        raise ConfigError(f"rank={rank} of world_size={world_size} (from {origin}); ranks go from 0 to world_size - 1")
    return rank, world_size, origin


def local_world_size(env: Mapping[str, str] | None = None) -> int:
    """Return the number of ranks that a launcher has started on this machine, or 0: then the engine finds it."""
    env = os.environ if env is None else env
    for _, _, _, local in _LAUNCHERS:
        try:
            if (n := int(env.get(local, "0"))) > 0:
                return n
        except ValueError:
            pass
    return 0


def ranks_here(env: Mapping[str, str] | None = None) -> int:
    """Return the number of ranks of this job on this machine, 1 if no launcher reports it."""
    env = os.environ if env is None else env
    if n := local_world_size(env):
        return n
    if "SLURM_STEP_ID" not in env:
        return 1
    # Such as "4(x2),3": four on each of the first two nodes, three on the last.
    node, at = int(env.get("SLURM_NODEID") or 0), 0
    for n, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", env.get("SLURM_STEP_TASKS_PER_NODE", "")):
        at += int(times or 1)
        if node < at:
            return int(n)
    return 1


# Variables that the ranks of one job have in common, and that differ between jobs.
_JOB = (
    "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid", "MPI_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID",
)  # fmt: skip


def job(env: Mapping[str, str]) -> str:
    """Return a text that is equal for the ranks of a job on this machine."""
    return "\0".join(f"{name}={env[name]}" for name in _JOB if name in env)


def _detect(env: Mapping[str, str]) -> tuple[int, int, str]:
    # An initialised process group is the truth, whatever the environment says.
    torch_distributed: Any = sys.modules.get("torch.distributed")
    if torch_distributed is not None and torch_distributed.is_available() and torch_distributed.is_initialized():
        return torch_distributed.get_rank(), torch_distributed.get_world_size(), "torch.distributed"
    half = ""
    for launcher, ranks, sizes, _ in _LAUNCHERS:
        # A batch script without srun also has SLURM_PROCID=0 and SLURM_NTASKS=n, but is one process. Only the tasks of
        # a step have SLURM_STEP_ID.
        if launcher == "Slurm" and "SLURM_STEP_ID" not in env and "SLURM_JOB_ID" in env:
            continue
        rank, size = (next((v for v in names if env.get(v)), None) for names in (ranks, sizes))
        if rank and size:
            return _number(env, rank), _number(env, size), f"{launcher}: {rank}, {size}"
        if rank:
            half = half or f"{rank} is set without {sizes[0] if sizes else 'the number of ranks'}"
        elif size and sizes == ("WORLD_SIZE",) and env[size] != "1":
            half = half or f"{size} is set without {ranks[0]}"
    if half:
        warn(
            f"{half}: this process reads all of the data, as rank 0 of 1\n"
            "hint: pass ranks=stoker.Ranks(rank, world_size) to the Loader, or start it with torchrun, mpirun or srun",
            RuntimeWarning,
        )
    return 0, 1, ""


def _number(env: Mapping[str, str], name: str) -> int:
    try:
        return int(env[name])
    except ValueError:
        raise ConfigError(f"the environment variable {name} is {env[name]!r}, not a whole number") from None
