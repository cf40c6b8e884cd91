"""Loaded by the Python of a script that is measured: when its loaders gave which batches, and small models to train.

It does not affect the comparison: the same lines run with and without `stoker run`. It writes a line of JSON for each
pass over a DataLoader to the file that STOKER_BENCH_LOG names. Scripts take their models by name from torchvision and
timm. The hook adds a model called `tiny` there, whose step costs almost nothing, so that the loader is the limit.
"""

import importlib.abc
import importlib.util
import itertools
import json
import os
import sys
import time

_LOG = os.environ.get("STOKER_BENCH_LOG", "")
# Epochs of the training loader repeat its first batch. This measures the rest of the script, with data that costs
# nothing.
_SAME = bool(os.environ.get("STOKER_BENCH_SAME"))
_PID = os.getpid()


class _Pass:
    """One pass over a loader."""

    def __init__(self, loader, inner, begun):
        self._loader, self._inner, self._begun = loader, inner, begun
        self._first = self._last = self._waited = 0.0
        self._rows = self._batches = 0

    def __iter__(self):
        return self

    def __next__(self):
        asked = time.perf_counter()
        try:
            batch = next(self._inner)
        except StopIteration:
            self._end(time.perf_counter())
            raise
        self._last = time.perf_counter()
        self._first = self._first or self._last
        self._waited += self._last - asked
        self._batches += 1
        self._rows += _rows(batch)
        return batch

    def __len__(self):
        return len(self._loader if _SAME else self._inner)

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def __del__(self):
        self._end(self._last)  # an earlier pass that the loop left

    def _end(self, now):
        if self._begun and self._batches and os.getpid() == _PID:
            line = {
                "loader": id(self._loader),
                "dataset": type(self._loader.dataset).__name__,
                "batches": self._batches,
                "rows": self._rows,
                "first_s": self._first - self._begun,
                "seconds": now - self._begun,
                "waited_s": self._waited,
                "at": now,
            }
            with open(_LOG, "a") as f:
                f.write(json.dumps(line) + "\n")
        self._begun = 0.0


def _rows(batch):
    """The number of samples in a batch."""
    while not hasattr(batch, "shape"):
        if isinstance(batch, dict) or hasattr(batch, "keys"):
            batch = next(iter(batch.values()))
        elif isinstance(batch, (list, tuple)) and batch:
            batch = batch[0]
        else:
            return 0
    return int(batch.shape[0])


def _same(loader, original):
    """The first batch of a loader, as often as it has batches. No workers run in the background during these epochs,
    except in the first one before its time is taken."""
    kept = vars(loader)
    if "bench_batch" not in kept:
        inner = original(loader)
        kept["bench_batch"] = next(inner)
        end = getattr(inner, "_shutdown_workers", None)
        if end is not None:
            end()
        loader._iterator = None  # of persistent workers
    return itertools.repeat(kept["bench_batch"], len(loader))


def _watch(module):
    base = module.DataLoader
    original = base.__iter__

    def begin(self):
        # Scripts count the results of evaluation, in order, and compare them with the length of the dataset. A loader
        # with a batch sampler also has a sampler in order, which is not used.
        sampler = getattr(self.batch_sampler, "sampler", self.sampler)
        same = _SAME and not isinstance(sampler, module.SequentialSampler)
        prepared = _same(self, original) if same else None
        begun = time.perf_counter()
        return _Pass(self, original(self) if prepared is None else prepared, begun)

    base.__iter__ = begin


def _tiny(classes, dense=False):
    """A model of a few thousand numbers: means of 32 x 32 pixels, and a linear layer."""
    import torch

    if dense:
        return torch.nn.Conv2d(3, classes, 1, stride=8)
    return torch.nn.Sequential(torch.nn.AvgPool2d(32, ceil_mode=True), torch.nn.Flatten(), torch.nn.LazyLinear(classes))


def _torchvision(module):
    import torch

    def tiny(num_classes=1000, **_):
        model = _tiny(num_classes)
        model(torch.zeros(1, 3, 224, 224))
        return model

    class TinyDense(torch.nn.Module):
        def __init__(self, classes):
            super().__init__()
            self.backbone, self.classifier = torch.nn.AvgPool2d(4), _tiny(classes, dense=True)

        def forward(self, x):
            out = self.classifier(self.backbone(x))
            return {"out": torch.nn.functional.interpolate(out, x.shape[-2:])}

    def tiny_dense(num_classes=21, **_):
        return TinyDense(num_classes)

    for function in (tiny, tiny_dense):
        module._api.register_model()(function)
        setattr(module, function.__name__, function)


def _timm(module):
    import torch

    def tiny(pretrained=False, num_classes=1000, **_):
        model = _tiny(num_classes)
        model(torch.zeros(1, 3, 224, 224))
        model.num_classes = num_classes
        model.pretrained_cfg = model.default_cfg = {
            "input_size": (3, 224, 224), "interpolation": "bilinear", "crop_pct": 0.875,
            "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225),
        }  # fmt: skip
        return model

    module.register_model(tiny)


def _torchaudio(module):
    """A package for another CUDA version than torch's fails to import, and so does every package that imports it,
    even without a GPU."""
    module._check_cuda_version = lambda: None


_AFTER = {
    "torch.utils.data.dataloader": _watch, "torchvision.models": _torchvision, "timm.models": _timm,
    "torchaudio._extension.utils": _torchaudio,
}  # fmt: skip


class _Loader(importlib.abc.Loader):
    """Runs a module as its own loader does, and changes it then."""

    def __init__(self, loader, after):
        self._loader, self._after = loader, after

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        self._after(module)

    def __getattr__(self, name):
        return getattr(self._loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        after = _AFTER.pop(name, None)
        if after is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, after)
        return spec


if _LOG:
    sys.meta_path.insert(0, _Finder())
