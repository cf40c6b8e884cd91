"""LeRobot's dataset class with records that Stoker reads and decodes.

::

    from stoker.lerobot import LeRobotDataset      # instead of lerobot.datasets.lerobot_dataset

    dataset = LeRobotDataset("lerobot/pusht", root="pusht/", delta_timestamps={"action": [0, 0.1, 0.2]})
    loader = torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True)

``dataset.records`` is the same data as a :class:`stoker.Dataset`. Its ``loader`` is the fastest way to train.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset as _LeRobotDataset

from ._dataset import Dataset
from ._dataset import open as _open
from ._errors import ConfigError, public

__all__ = ["LeRobotDataset"]


def __dir__() -> list[str]:
    return __all__


class LeRobotDataset(_LeRobotDataset):  # type: ignore[misc]
    """LeRobot's ``LeRobotDataset``, of which Stoker reads the records.

    Metadata, features, episodes and all other attributes are LeRobot's own. A record has the same values as LeRobot's:
    tensors, ``task`` as a text, and ``NAME_is_pad`` for features with ``delta_timestamps``. Frames of videos are
    ``float32`` from 0 to 1, with the channels first. Images and texts in the table are read by LeRobot.

    Args:
        repo_id: the name of the dataset.
        root: the folder with the data. LeRobot downloads what is missing in it.
        episodes: the numbers of the episodes to read; None for all.
        image_transforms: a function for the frames of each camera.
        delta_timestamps: seconds around a record at which features are read, by feature.
        options: further arguments of LeRobot's class.

    Attributes:
        records: the records as a :class:`stoker.Dataset`, with clips of ``uint8`` frames.

    Raises:
        ConfigError: delta_timestamps has a feature of images or texts in the table.
    """

    __module__ = "stoker.lerobot"

    records: Dataset

    @public
    def __init__(
        self,
        repo_id: str,
        root: str | os.PathLike[str] | None = None,
        episodes: Sequence[int] | None = None,
        image_transforms: Callable[[torch.Tensor], torch.Tensor] | None = None,
        delta_timestamps: dict[str, list[float]] | None = None,
        **options: Any,
    ) -> None:
        chosen = None if episodes is None else list(episodes)
        super().__init__(
            repo_id,
            root=root,
            episodes=chosen,
            image_transforms=image_transforms,
            delta_timestamps=delta_timestamps,
            **options,
        )
        self._transform_frames = image_transforms
        features = self.meta.features
        self._in_table = [name for name, f in features.items() if f["dtype"] in ("image", "string")]
        times = delta_timestamps or {}
        for name in times:
            if name in self._in_table:
                raise ConfigError(
                    f"delta_timestamps: {name} is {features[name]['dtype']} in the table, which is not read at several "
                    "times: use LeRobot's own class"
                )
        text = ";".join(f"{name}={','.join(repr(float(t)) for t in at)}" for name, at in times.items())
        data = _open(f"lerobot:{self.root}" + (f"?deltas={quote(text, safe='=;,.-_')}" if text else ""))
        self._index = np.arange(len(data))
        if chosen is not None:
            of = self.meta.episodes
            spans = [(of[e]["dataset_from_index"], of[e]["dataset_to_index"]) for e in sorted(set(chosen))]
            self._index = np.concatenate([np.arange(*span) for span in spans])
            data = data[self._index]
        self.records = data

    def __getitem__(self, idx: int) -> dict[str, Any]:
        return self.__getitems__([idx])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return several records, which the engine decodes at the same time. A ``DataLoader`` calls it."""
        read = self.records.__getitems__(indices)
        return [self._item(int(i), record) for i, record in zip(indices, read, strict=True)]

    def _item(self, i: int, record: Any) -> dict[str, Any]:
        features, cameras = self.meta.features, self.meta.video_keys
        item: dict[str, Any] = {}
        for name, value in record.items():
            if name in cameras:
                frames = torch.from_numpy(np.array(value)).permute(0, 3, 1, 2)
                item[name] = (frames.to(torch.float32) / 255).squeeze(0)
            elif name in features:
                item[name] = torch.from_numpy(np.array(value, features[name]["dtype"]))
            elif isinstance(value, np.ndarray):
                item[name] = torch.from_numpy(np.array(value))
            else:
                item[name] = value
        item["index"] = torch.tensor(int(self._index[i]))
        if self._in_table:
            row = self.hf_dataset[i]
            item |= {name: row[name] for name in self._in_table}
        if self._transform_frames is not None:
            for name in self.meta.camera_keys:
                item[name] = self._transform_frames(item[name])
        return item
