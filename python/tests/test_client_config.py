"""The settings that a loader takes and sends to a fake engine."""

from __future__ import annotations

import gc
import inspect
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import stoker
from stoker import transforms as T
from support import children, open_files, rows, wait_for

pytestmark = pytest.mark.usefixtures("fake")
Make = Callable[..., stoker.Loader]


def test_config_reaches_the_engine(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    loader = make(
        "fake:",
        batch_size=2,
        seed=2**63,
        limits=stoker.Limits(memory="1.5GiB", prefetch=5, lookahead="256MiB", cores=2.5, weight=3),
        threads=3,
        cache=stoker.Cache(
            False, dir="/some/where", limit="5GB", stage="/scratch", peers=["a:1", "b:2"], peers_self="a:1"
        ),
        on_error="skip",
        metrics=":9400",
        drop_last=True,
        shuffle=True,
        transforms={
            "image": stoker.Field("image", T.RandomResizedCrop(224), layout="NCHW"),
            "b": stoker.Field("image", [T.Resize(8)]),
        },
    )
    config = loader.info["config"]
    assert config.pop("outputs") == [
        {
            "name": "image",
            "field": "image",
            "layout": "NCHW",
            "ops": [
                {
                    "op": "RandomResizedCrop",
                    "size": 224,
                    "scale": [0.08, 1.0],
                    "ratio": [0.75, 4 / 3],
                    "interpolation": "bilinear",
                    "antialias": True,
                }
            ],
        },
        {
            "name": "b",
            "field": "image",
            "layout": "NHWC",
            "ops": [T.Resize(8).to_config()],
        },
    ]
    assert config == {
        "source": "fake:",
        "batch_size": 2,
        "shuffle": True,
        "window": 0,
        "cache_memory": 0,
        "seed": 2**63,
        "drop_last": True,
        "uneven": "exact",
        "rank": 1,
        "world_size": 4,
        "local_world_size": 0,
        "threads": 3,
        "memory": 3 << 29,
        "prefetch": 5,
        "lookahead": 1 << 28,
        "on_error": "skip",
        "repair_from": "",
        "max_bad": "default",
        "quarantine": "",
        "timeout": 300.0,
        "cores": 2.5,
        "cpu_limit": 0,
        "weight": 3.0,
        "share": False,
        "pinned": False,
        "cache": "off",
        "cache_dir": "/some/where",
        "cache_limit": 5_000_000_000,
        "stage": "/scratch",
        "peers": ["a:1", "b:2"],
        "peers_self": "a:1",
        "metrics": ":9400",
        "layout": "NHWC",
        "apply_orientation": False,
        "sequence": None,
        "pad": {},
        "bucket": None,
        "align": None,
        "mix": None,
    }
    assert next(iter(loader)).keys() == ["image", "b", "label", "index"]
    assert "rank=1, world_size=4" in repr(loader)


@pytest.mark.parametrize(
    ("value", "sent"),
    [(None, "default"), (20, "20"), (0, "0"), (0.05, "5%"), (1.0, "100%"), ("2.5%", "2.5%"), ("7", "7")],
)
def test_max_bad(make: Make, value: object, sent: str) -> None:
    config = make("fake:", batch_size=2, on_error=stoker.OnError("skip", max_bad=value, quarantine="bad.jsonl")).info[
        "config"
    ]
    assert config["max_bad"] == sent
    assert config["quarantine"] == os.path.abspath("bad.jsonl")


def test_large_config(make: Make) -> None:
    fields = {f"view{i}": stoker.Field("image", [T.RandomResizedCrop(96)] * 20) for i in range(30)}
    loader = make("fake:", batch_size=2, transforms=fields)
    assert len(loader.info["config"]["outputs"]) == 30


def test_python_without_memfd_and_pidfd(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As conda builds it."""
    rows(make("fake:len=2", batch_size=2))  # the step log of this process is made by the first loop
    before = open_files()
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.delattr(os, "pidfd_open")
    fields = {f"view{i}": stoker.Field("image", [T.RandomResizedCrop(96)] * 20) for i in range(30)}
    loader = make("fake:len=6&die_at=4", batch_size=2, transforms=fields)
    with pytest.warns(stoker.EngineRestarted), pytest.raises(stoker.EngineDied, match="something is wrong"):
        rows(loader)
    loader.close()
    gc.collect()  # the exception holds the frame that holds the last batch
    assert open_files() == before


def test_paths_become_absolute(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert make("train/", batch_size=2).info["config"]["source"] == str(tmp_path / "train")
    assert make(Path("x"), batch_size=2).source == str(tmp_path / "x")
    assert make("file:///data", batch_size=2).source == "file:///data"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"batchsize": 2}, "did you mean 'batch_size'"),
        ({"pin_memory": True}, "shared memory"),
        ({"prefetch_factor": 2}, r"Limits\(prefetch="),
        ({"timeout": 2}, r"use limits=stoker.Limits\(timeout=...\)"),
        ({"rank": 2}, "use ranks="),
        ({"wibble": 2}, "there are: align, apply_orientation, batch_map, batch_size"),
    ],
)
def test_unknown_arguments(make: Make, arguments: dict, error: str) -> None:
    with pytest.raises(TypeError, match=error) as caught:
        make("fake:", **arguments)
    assert isinstance(caught.value, stoker.StokerError)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number from 1 to 1048576, not 0"),
        ({"batch_size": 2.5}, "whole number"),
        ({"batch_size": True}, "whole number"),
        ({"seed": -1}, "seed must be .*, not -1"),
        ({"threads": "all"}, "threads"),
        ({"on_error": "skp"}, r'on_error must be a stoker.OnError\(...\), "raise", "skip" or "repair", not .skp'),
        ({"limits": 5}, r"limits must be a stoker.Limits\(...\)"),
        ({"ranks": stoker.Ranks(1)}, "world_size="),
        ({"ranks": stoker.Ranks(2, 2)}, "rank=2"),
        ({"output": "jax"}, "numpy, torch"),
        ({"transforms": {"image": stoker.Field("image", layout="channels_last")}}, 'output="torch"'),
        ({"transforms": {"image": [T.Resize]}}, r"write Resize\(...\)"),
        ({"transforms": {"image": [lambda x: x]}}, "not a transform of stoker"),
        ({"transforms": {"image": 5}}, "list of transforms"),
        ({"transforms": {"index": []}}, "record numbers"),
        ({"transforms": "image"}, "dict such as"),
    ],
)
def test_wrong_arguments(make: Make, impatient: None, arguments: dict, error: str) -> None:
    with pytest.raises(stoker.StokerError, match=error):
        make("fake:", **arguments)


@pytest.mark.parametrize(
    ("group", "options", "error"),
    [
        (stoker.Limits, {"memory": "2 parsecs"}, "units are B, KB"),
        (stoker.Limits, {"memory": 0}, "memory must be a number of bytes of at least 1"),
        (stoker.Limits, {"prefetch": 0}, "Limits: prefetch must be a whole number from 1 to 1024, or None, not 0"),
        (stoker.Limits, {"timeout": 0}, "timeout must be a number above 0"),
        (stoker.Limits, {"timout": 3}, "Limits has no argument 'timout'; did you mean 'timeout'?"),
        (stoker.Ranks, {"uneven": "even"}, 'uneven must be "exact", "pad" or "drop"'),
        (stoker.Cache, {"disk": "off"}, 'disk must be True, False or "auto"'),
        (stoker.Field, {"source": "image", "layout": "NWHC"}, "did you mean 'NHWC'"),
    ],
)
def test_wrong_options(group: type, options: dict, error: str) -> None:
    with pytest.raises(stoker.ConfigError, match=error):
        group(**options)


def test_no_engine_at_the_socket(make: Make, impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_SOCKET", "/nowhere/s")
    with pytest.raises(stoker.StokerError, match="stoker serve --socket /nowhere/s"):
        make("fake:")


def test_groups_are_values() -> None:
    cache = stoker.Cache(limit="5GB", peers=["a:1"])
    assert cache == stoker.Cache(limit="5GB", peers=["a:1"]) != stoker.Cache()
    assert repr(cache) == "Cache(limit='5GB', peers=['a:1'])" and pickle.loads(pickle.dumps(cache)) == cache
    assert cache.to_config()["cache"] == "on"
    with pytest.raises(AttributeError):
        cache.limit = 3  # type: ignore[misc]
    assert str(inspect.signature(stoker.Ranks)).startswith("(rank:")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        # Open MPI starts its own daemons by srun: the step and its tasks are those of the daemons.
        (
            {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
            | {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"},
            (5, 8),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"}, (1, 4)),
        ({"PMIX_RANK": "1", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        (
            {"PMIX_RANK": "3", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_NTASKS": "4"},
            (3, 4),
        ),
        ({"MV2_COMM_WORLD_RANK": "0", "MV2_COMM_WORLD_SIZE": "2"}, (0, 2)),
        ({"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "6", "PMIX_RANK": "1"}, (1, 6)),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}, (1, 2)),
        ({"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "2"}, (1, 2)),
        ({"RANK": "1", "WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, (1, 2)),
        ({"WORLD_SIZE": "1"}, (0, 1)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, (1, 2)),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}, (1, 4)),
        # The batch script itself, which is one process.
        ({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, (0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (1, 2)),
    ],
)
def test_rank_from_the_environment(env: dict, expected: tuple[int, int]) -> None:
    from stoker._distributed import found_rank

    assert found_rank(None, None, env)[:2] == expected
    assert found_rank(5, 6, env)[:2] == (5, 6)


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"RANK": "3"}, "RANK is set without WORLD_SIZE"),
        ({"WORLD_SIZE": "2", "LOCAL_RANK": "1"}, "WORLD_SIZE is set without RANK"),
        ({"PMIX_RANK": "1", "PMIX_NAMESPACE": "a"}, "PMIX_RANK is set without"),
        ({"OMPI_COMM_WORLD_RANK": "1"}, "OMPI_COMM_WORLD_RANK is set without OMPI_COMM_WORLD_SIZE"),
        ({"PMI_RANK": "1"}, "PMI_RANK is set without PMI_SIZE"),
        ({"PALS_RANKID": "1"}, "PALS_RANKID is set without"),
        ({"ALPS_APP_PE": "1"}, "ALPS_APP_PE is set without"),
    ],
)
def test_a_rank_without_the_number_of_ranks_warns(env: dict, said: str) -> None:
    from stoker._distributed import found_rank

    with pytest.warns(RuntimeWarning, match=f"{said}.*reads all of the data"):
        assert found_rank(None, None, env)[:2] == (0, 1)
    assert found_rank(5, 6, env)[:2] == (5, 6)


def test_ranks_that_do_not_fit() -> None:
    from stoker._distributed import found_rank

    with pytest.raises(stoker.ConfigError, match=r"rank=2 of world_size=2 \(from Open MPI: OMPI_COMM_WORLD_RANK"):
        found_rank(None, None, {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "2"})


def test_rank_is_shown(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    loader = make("fake:")
    assert (loader.rank, loader.world_size) == (1, 2)
    assert (loader.info["rank"], loader.info["world_size"]) == (1, 2)
    assert loader.info["rank_from"] == "Open MPI: OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE"
    assert "rank=1, world_size=2 from Open MPI" in repr(loader)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, 0),
        ({"LOCAL_WORLD_SIZE": "8"}, 8),
        ({"LOCAL_WORLD_SIZE": "x"}, 0),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2),
        ({"MPI_LOCALNRANKS": "4"}, 4),
    ],
)
def test_local_world_size(env: dict[str, str], expected: int) -> None:
    from stoker._distributed import local_world_size

    assert local_world_size(env) == expected


def test_source_refused(make: Make) -> None:
    with pytest.raises(stoker.ConfigError, match=r"no such folder: /x\nhint: make it"):
        make("fake:refuse=1")
    wait_for(lambda: not children(os.getpid()))
