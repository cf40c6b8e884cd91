"""Data sets in LeRobot's layout, compared with a plain reading of the layout and with PyAV's frames."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import stoker
from stoker import transforms as T
from support import CHECKOUT

av = pytest.importorskip("av", reason="PyAV writes the videos and decodes them")
pq = pytest.importorskip("pyarrow.parquet")
Make = Callable[..., stoker.Loader]


@pytest.fixture(scope="module")
def layout() -> ModuleType:
    path = CHECKOUT / "scripts/fixtures/lerobot.py"
    spec = importlib.util.spec_from_file_location("lerobot_layout", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def root(layout: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lerobot")
    layout.write(folder, "libx264")
    return folder


def videos(root: Path, layout: ModuleType, version: str) -> dict[str, npt.NDArray[np.uint8]]:
    """All frames of each camera, in the order of the rows, as PyAV decodes them."""
    out = {}
    for camera in layout.CAMERAS:
        frames = []
        for path in sorted(p for p in (root / version).rglob("*.mp4") if camera in p.parts):
            with av.open(path) as file:
                frames += [f.to_ndarray(format="rgb24") for f in file.decode(video=0)]
        out[camera] = np.stack(frames)
    return out


@pytest.mark.parametrize("version", ["v3", "v2"])
def test_moments(make: Make, root: Path, layout: ModuleType, version: str) -> None:
    table, frames = layout.frames().to_pydict(), videos(root, layout, version)
    seen = []
    loader = make(root / version, batch_size=4, shuffle=True, seed=3)
    for batch in loader:
        for k, i in enumerate(batch.index.tolist()):
            seen.append(i)
            assert batch["observation.state"][k].tolist() == table["observation.state"][i]
            assert batch["action"][k].tolist() == table["action"][i]
            assert batch["next.reward"][k] == table["next.reward"][i]
            assert bool(batch["next.done"][k]) == table["next.done"][i]
            assert batch["timestamp"][k] == pytest.approx(table["timestamp"][i])
            for name in ("frame_index", "episode_index", "task_index"):
                assert batch[name][k] == table[name][i]
            assert batch["task"][k] == layout.TASKS[table["task_index"][i]]
            for camera in layout.CAMERAS:
                assert batch[camera].shape[1:] == (1, layout.SIZE, layout.SIZE, 3)
                assert np.array_equal(batch[camera][k, 0], frames[camera][i])
    assert sorted(seen) == list(range(sum(layout.LENGTHS)))


def queried(table: dict[str, Any], i: int, frames: list[int]) -> tuple[list[int], list[bool]]:
    """The rows that LeRobot gives for deltas, and which of them are padding."""
    episode = [k for k, e in enumerate(table["episode_index"]) if e == table["episode_index"][i]]
    first, last = episode[0], episode[-1]
    return [min(max(i + d, first), last) for d in frames], [not first <= i + d <= last for d in frames]


@pytest.mark.parametrize("version", ["v3", "v2"])
def test_deltas(make: Make, root: Path, layout: ModuleType, version: str) -> None:
    table, frames = layout.frames().to_pydict(), videos(root, layout, version)
    top, wrist = layout.CAMERAS
    url = f"{root / version}?deltas=action=0:5;{top}=-0.2,0,0.1;next.reward=-1:1"
    deltas = {"action": list(range(5)), top: [-2, 0, 1], "next.reward": [-1, 0]}
    for batch in make(url, batch_size=3, shuffle=True, seed=1):
        for k, i in enumerate(batch.index.tolist()):
            for name, offsets in deltas.items():
                rows, pad = queried(table, i, offsets)
                assert batch[f"{name}_is_pad"][k].tolist() == pad
                want = frames[name][rows] if name == top else np.array([table[name][r] for r in rows], np.float32)
                assert batch[name].dtype == want.dtype
                assert np.array_equal(batch[name][k], want)
            assert np.array_equal(batch[wrist][k, 0], frames[wrist][i])


def test_parts(make: Make, root: Path, layout: ModuleType) -> None:
    """Views choose episodes and features."""
    url = f"{root / 'v3'}?deltas=action=0:2#where=episode_index>=1&select=action,frame_index"
    loader = make(url, batch_size=2)
    assert len(loader.info["arrays"]) > 0
    assert sum(len(batch) for batch in loader) == sum(layout.LENGTHS[1:])


def test_transforms(make: Make, root: Path, layout: ModuleType) -> None:
    top = layout.CAMERAS[0]
    loader = make(root / "v3", batch_size=4, transforms={top: [T.Resize(16)], "action": []})
    batch = next(iter(loader))
    assert batch[top].shape == (4, 1, 16, 16, 3)


def test_wrong(make: Make, root: Path) -> None:
    for query, says in (
        ("deltas=action=0.05", "not a whole number of frames"),
        ("deltas=actions=0:2", "no such feature"),
        ("stride=2", "unknown parameter"),
    ):
        with pytest.raises(stoker.ConfigError, match=says):
            make(f"{root / 'v3'}?{query}", batch_size=2)


def test_beside_lerobot_itself(make: Make, root: Path, layout: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("lerobot", reason="LeRobot's own class reads the same")
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    top, wrist = layout.CAMERAS
    deltas = {"action": [0, 0.1, 0.2], top: [-0.1, 0], "next.reward": [-0.1, 0]}
    theirs = LeRobotDataset("a/b", root=root / "v3", delta_timestamps=deltas, video_backend="torchcodec")
    text = ";".join(f"{k}={','.join(map(str, v))}" for k, v in deltas.items())
    for batch in make(f"{root / 'v3'}?deltas={text}", batch_size=4):
        for k, i in enumerate(batch.index.tolist()):
            item = theirs[i]
            assert batch["task"][k] == item["task"]
            for name in (top, wrist):
                frames = (item[name].numpy() * 255).round().astype(np.uint8).reshape(-1, 3, layout.SIZE, layout.SIZE)
                assert np.array_equal(batch[name][k], frames.transpose(0, 2, 3, 1))
            for name in ("action", "action_is_pad", f"{top}_is_pad", "next.reward", "next.reward_is_pad"):
                assert np.array_equal(batch[name][k], item[name].numpy())
            for name in ("observation.state", "next.done", "timestamp"):
                assert np.array_equal(batch[name][k], item[name].numpy().reshape(batch[name][k].shape))


@pytest.fixture
def classes(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """LeRobot's class and ours."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("lerobot", reason="LeRobot's own class reads the same")
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    import stoker.lerobot

    return LeRobotDataset, stoker.lerobot.LeRobotDataset


def same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    import torch

    assert set(ours) == set(theirs)
    for name, want in theirs.items():
        got = ours[name]
        if not isinstance(want, torch.Tensor):
            assert got == want, name
            continue
        assert (got.dtype, got.shape) == (want.dtype, want.shape), name
        near = 1e-6 if name.startswith("observation.images") else 0
        assert (got.double() - want.double()).abs().max() <= near, name


@pytest.mark.filterwarnings("ignore")  # of LeRobot
@pytest.mark.parametrize("episodes", [None, [2, 0]])
@pytest.mark.parametrize("times", [None, {"action": [0, 0.1, 0.2], "next.reward": [-0.1, 0], "next.done": [0]}])
def test_class(classes: tuple[Any, Any], root: Path, layout: ModuleType, episodes: Any, times: Any) -> None:
    import torch

    of_theirs, of_ours = classes
    top, _ = layout.CAMERAS
    if times:
        times = times | {top: [-0.1, 0.0]}
    args = {"root": root / "v3", "episodes": episodes, "delta_timestamps": times}
    theirs, ours = of_theirs("a/b", video_backend="torchcodec", **args), of_ours("a/b", **args)
    assert isinstance(ours, of_theirs)
    assert len(ours) == len(theirs) == ours.num_frames == len(ours.records)
    assert (ours.fps, ours.num_episodes, ours.features) == (theirs.fps, theirs.num_episodes, theirs.features)
    assert ours.meta.camera_keys == theirs.meta.camera_keys
    for i in range(len(theirs)):
        same(ours[i], theirs[i])
    loader = torch.utils.data.DataLoader(ours, batch_size=4)
    items = [x for batch in loader for x in batch["index"].tolist()]
    assert items == [int(x) for x in theirs.hf_dataset["index"]]
    assert sum(len(batch) for batch in ours.records.loader(batch_size=4)) == len(ours)


@pytest.mark.filterwarnings("ignore")
def test_transforms_of_class(classes: tuple[Any, Any], root: Path, layout: ModuleType) -> None:
    of_theirs, of_ours = classes
    args = {"root": root / "v3", "image_transforms": lambda frames: frames.flip(-1) * 2}
    same(of_ours("a/b", **args)[9], of_theirs("a/b", video_backend="torchcodec", **args)[9])
