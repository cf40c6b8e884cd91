"""Batches on an accelerator: transfer rates and step times, compared with PyTorch's DataLoader and DALI.

    make bench SUITES=gpu                          all of it, about 15 minutes
    .venv/bin/python -m bench.gpu --help

Four questions, each arm in a separate process, in turns:

copy    bytes per second from the engine's memory to the device, as `stoker.Loader(device=)` copies them, compared
        with consecutive copies of the same size from pinned memory, the limit of the bus. Target: 0.9.
step    milliseconds of a ResNet-50 step in bfloat16 on live batches, compared with the same step on batches that are
        already on the device. Target: 1.01.
others  the live step with PyTorch's DataLoader and pin_memory=True, and with DALI if it is installed.
doctor  the verdicts of `stoker doctor` on four jobs after 12 s. The first job computes on the same batch repeatedly,
        one has only two workers, which are too few, one has unpinned batches, and one uses Stoker. They are compared
        with the possible gains: the rate of each job versus that of the first.

Results go to bench/results/gpu-<machine>-<commit>.json. Without an accelerator it prints one line with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from . import datasets, procs, runner, stored
from .against import arguments
from .run import _git, _slug

ROOT = runner.ROOT
SIZE, CLASSES = 224, 1000
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BARS = {"copy": ("copies of stoker / pinned copies", 0.9), "step": ("step live / step on cached batches", 1.01)}


def say(text: str) -> None:
    print(f"gpu: {text}", flush=True)


def why_not() -> str:
    """The reason why nothing can be measured here, "" if it can."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    if not torch.cuda.is_available():
        return "PyTorch sees no CUDA device (torch.cuda.is_available() is False)"
    return ""


def have_dali() -> bool:
    """Whether DALI is installed. CUDA's libraries also use the name nvidia."""
    with contextlib.suppress(ModuleNotFoundError):
        return importlib.util.find_spec("nvidia.dali") is not None
    return False


def timed(batches: Iterator[Any], use: Callable[[Any], None], a: argparse.Namespace) -> tuple[float, int]:
    """Seconds and batches of a window after a warm-up. The device has finished at both ends."""
    import torch

    start, count, begin = time.perf_counter(), 0, 0.0
    for batch in batches:
        use(batch)
        now = time.perf_counter()
        if not begin:
            if now - start > a.warmup:
                torch.cuda.synchronize()
                begin = time.perf_counter()
            continue
        count += 1
        if now - begin > a.seconds:
            break
    torch.cuda.synchronize()
    return time.perf_counter() - begin, count


def forever(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


# -- arms: each yields (images, labels) on the device, images bfloat16, channels_last --------------------------------


def stoker_loader(a: argparse.Namespace, **more: Any) -> Any:
    import stoker
    from stoker import transforms as T

    crop = [T.RandomResizedCrop(SIZE)]
    return stoker.Loader(a.source, a.batch, shuffle=True, drop_last=True, transforms={"image": crop}, **more)


def stoker_batches(a: argparse.Namespace) -> Iterator[Any]:
    import stoker

    of = stoker.OnDevice("bfloat16", mean=MEAN, std=STD, flip=0.5, layout="channels_last")
    for batch in forever(stoker_loader(a, device=of)):
        yield batch.image, batch.label


def torch_batches(a: argparse.Namespace) -> Iterator[Any]:
    import torch
    from torchvision import datasets as tv
    from torchvision.transforms import v2

    parts = [v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip(), v2.PILToTensor()]
    data = tv.ImageFolder(a.folder, v2.Compose(parts))
    mean, std = (torch.tensor(x, device="cuda").view(3, 1, 1) * 255 for x in (MEAN, STD))
    loader = torch.utils.data.DataLoader(
        data, a.batch, True, num_workers=a.workers, pin_memory=True, drop_last=True, persistent_workers=True
    )
    for images, labels in forever(loader):
        x = images.to("cuda", non_blocking=True).sub(mean).div(std)
        yield x.to(torch.bfloat16, memory_format=torch.channels_last), labels.to("cuda", non_blocking=True)


def dali_batches(a: argparse.Namespace) -> Iterator[Any]:
    import torch
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    @pipeline_def(batch_size=a.batch, num_threads=a.workers, device_id=0)  # type: ignore[misc,unused-ignore]
    def pipe() -> Any:
        files, labels = fn.readers.file(file_root=a.folder, random_shuffle=True, name="r", pad_last_batch=True)
        images = fn.decoders.image_random_crop(files, device="mixed")
        images = fn.resize(images, size=SIZE)
        mirror = fn.random.coin_flip()
        mean, std = ([255 * x for x in v] for v in (MEAN, STD))
        images = fn.crop_mirror_normalize(images, mean=mean, std=std, mirror=mirror, dtype=types.FLOAT16)
        return images, labels.gpu()

    found = pipe()
    found.build()
    for (one,) in forever(DALIGenericIterator(found, ["image", "label"], reader_name="r", auto_reset=True)):
        yield one["image"].to(torch.bfloat16, memory_format=torch.channels_last), one["label"].squeeze(1)


def cached_batches(a: argparse.Namespace) -> Iterator[Any]:
    """A few existing batches."""
    some = stoker_batches(a)
    kept = [tuple(t.clone() for t in next(some)) for _ in range(4)]
    yield from forever(kept)


def few_batches(a: argparse.Namespace) -> Iterator[Any]:
    """PyTorch's DataLoader with too few workers."""
    return torch_batches(argparse.Namespace(**{**vars(a), "workers": 2}))


class Blank:
    """Examples that cost nothing to make, of floats."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, i: int) -> tuple[Any, int]:
        import torch

        return torch.zeros(3, SIZE, SIZE), i % CLASSES


def unpinned_batches(a: argparse.Namespace) -> Iterator[Any]:
    """Batches of floats that are copied out of memory that is not pinned."""
    import torch

    loader = torch.utils.data.DataLoader(Blank(), a.batch, True, num_workers=a.workers, drop_last=True)  # type: ignore[arg-type,var-annotated,unused-ignore]
    for images, labels in forever(loader):
        yield images.to("cuda"), labels.to("cuda")


STEPS: dict[str, Callable[[argparse.Namespace], Iterator[Any]]] = {
    "cached": cached_batches,
    "stoker": stoker_batches,
    "torch": torch_batches,
    "dali": dali_batches,
    "few": few_batches,
    "unpinned": unpinned_batches,
}
# Jobs that doctor watches, and the expected verdicts.
JOBS = {"cached": "accelerator", "few": "cpu", "unpinned": "handoff", "stoker": "accelerator"}


def training(a: argparse.Namespace) -> Callable[[Any], None]:
    """A training step of ResNet-50."""
    import torch
    from torchvision.models import resnet50

    torch.backends.cudnn.benchmark = True
    model = resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    loss = torch.nn.CrossEntropyLoss()

    def use(batch: Any) -> None:
        images, labels = batch
        with torch.autocast("cuda", torch.bfloat16):
            value = loss(model(images), labels.long())
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        optimizer.step()

    return use


def rate(a: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of a training step."""
    use = training(a)
    cpu = procs.cpu_seconds(procs.os.getpid())
    seconds, count = timed(STEPS[a.arm](a), use, a)
    spent = procs.cpu_seconds(procs.os.getpid()) - cpu
    return {"step_ms": 1e3 * seconds / count, "images_s": count * a.batch / seconds, "cpu_s": spent, "batches": count}


def held_batches(loader: Any, device: Any) -> Iterator[Any]:
    """The first three batches of a loader on a device again and again, by the path on which all batches come there."""
    from stoker._device import Feeder

    batches = iter(loader)
    held = [next(batches) for _ in range(3)]
    feeder = Feeder(device)
    feeder.adopt(loader._epochs.connection)
    number, ahead = 0, feeder.begin(held[0], [held[0].image], list)
    try:
        while True:
            number += 1
            batch = held[number % len(held)]
            pending, ahead = ahead, feeder.begin(batch, [batch.image], list)
            yield feeder.finish(pending)
            feeder.sweep()
    finally:
        feeder.close()


def copy(a: argparse.Namespace) -> dict[str, Any]:
    """Bytes per second onto the device, without other work."""
    import torch

    shape = (a.batch, SIZE, SIZE, 3)
    size = a.batch * SIZE * SIZE * 3
    if a.arm == "pinned":
        host = torch.empty(shape, dtype=torch.uint8).pin_memory()

        def copies() -> Iterator[Any]:
            while True:
                yield host.to("cuda", non_blocking=True)

        found = copies()
    else:
        # The same few batches repeatedly, so that decoding is not the limit and only the path is measured.
        import stoker
        from stoker._device import Cuda

        loader = stoker_loader(a, output="torch", limits=stoker.Limits(prefetch=4))
        found = held_batches(loader, Cuda(torch, torch.device("cuda", 0)))
    seconds, count = timed(found, lambda _: None, a)
    return {"gb_s": size * count / seconds / 1e9, "batch_mb": size / 1e6, "batches": count}


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--workers", type=int, default=len(procs.os.sched_getaffinity(0)))
    p.add_argument("--parts", nargs="*", default=["copy", "step", "doctor"], choices=["copy", "step", "doctor"])
    p.add_argument("--arm", help=argparse.SUPPRESS)
    p.add_argument("--source", help=argparse.SUPPRESS)
    p.add_argument("--folder", help=argparse.SUPPRESS)
    arguments(p, seconds=20, warmup=8)
    p.set_defaults(rounds=3, limit=300)
    a = p.parse_args()
    if a.arm:
        print(json.dumps(copy(a) if a.parts == ["copy"] else rate(a)))
        return
    if reason := why_not():
        say(f"nothing is measured: {reason}")
        return
    a.work = a.work.resolve()
    folder = datasets.make("gen", a.work, a.data.resolve(), say)
    pack = a.work / "packs/gpu-dct"
    if not pack.exists():
        subprocess.run([ROOT / "bin/stoker", "pack", folder, pack, "--images", "dct"], check=True, capture_output=True)
    steps = ["cached", "stoker", "torch"] + ["dali"] * have_dali()
    arms = {"copy": ["pinned", "stoker"], "step": steps, "doctor": list(JOBS)}
    machine, commit = procs.describe_machine(), _git("rev-parse", "--short=10", "HEAD")
    import torch

    machine["device"] = torch.cuda.get_device_name(0)
    path = a.out or ROOT / "bench/results" / f"gpu-{_slug(machine)}-{commit}.json"
    result: dict[str, Any] = {
        "machine": machine, "commit": commit, "torch": torch.__version__,
        "changed_files": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "settings": {k: getattr(a, k) for k in ("rounds", "seconds", "warmup", "batch", "workers")},
        "rounds": [],
    }  # fmt: skip
    said = a.work / "gpu-doctor.json"
    for number in range(a.rounds):
        runs: dict[str, dict[str, Any]] = {part: {} for part in a.parts}
        for part in a.parts:
            for arm in random.Random(number).sample(arms[part], len(arms[part])):
                command = [sys.executable, "-m", "bench.gpu", "--arm", arm, "--parts", part, "--batch", str(a.batch)]
                command += ["--workers", str(a.workers), "--seconds", str(a.seconds), "--warmup", str(a.warmup)]
                command += ["--source", str(pack), "--folder", str(folder)]
                if part == "doctor":
                    watch = [str(ROOT / "bin/stoker"), "doctor", "--seconds", "12", "--save", str(said), "--"]
                    command = watch + command
                    said.unlink(missing_ok=True)
                got = runs[part][arm] = runner.run(command, a.limit, a.work / f"logs/gpu-{part}-{arm}.log")
                if part == "doctor" and said.exists():
                    got |= verdict(json.loads(said.read_text()))
                say(f"{number + 1}/{a.rounds} {part} {arm}: {line(got)}")
        result["rounds"].append(runs)
        path.parent.mkdir(parents=True, exist_ok=True)
        stored.save(path, result)
    print(summary(result["rounds"]))
    say(f"all figures are in {runner.short(path)}")


def verdict(report: dict[str, Any]) -> dict[str, Any]:
    """A report of doctor without its figures of each second."""
    kept = ("verdict", "confidence", "waiting", "gain", "line", "evidence", "advice", "seconds", "overhead")
    return {k: report[k] for k in kept}


def line(got: dict[str, Any]) -> str:
    if "error" in got:
        return str(got["error"])[-300:]
    if "verdict" in got:
        return f"{got['images_s']:,.0f} images/s; {got['line']}"
    return f"{got['gb_s']:.1f} GB/s" if "gb_s" in got else f"{got['step_ms']:.1f} ms, {got['images_s']:,.0f} images/s"


def summary(rounds: list[dict[str, Any]]) -> str:
    """Medians, and the ratios within rounds compared with their targets."""
    out = []
    for part, key, ours, theirs in (("copy", "gb_s", "stoker", "pinned"), ("step", "step_ms", "stoker", "cached")):
        for arm in dict.fromkeys(arm for r in rounds for arm in r.get(part, {})):
            values = [r[part][arm][key] for r in rounds if key in r.get(part, {}).get(arm, {})]
            if values:
                out.append(f"  {part:5s} {arm:8s} {statistics.median(values):8.2f} {'GB/s' if key == 'gb_s' else 'ms'}")
        shares = []
        for r in rounds:
            with contextlib.suppress(KeyError):
                shares.append(r[part][ours][key] / r[part][theirs][key])
        if shares:
            name, bar = BARS[part]
            out.append(f"  {name}: {statistics.median(shares):.3f} ({min(shares):.3f}-{max(shares):.3f}), bar {bar:g}")
    for arm, right in JOBS.items():
        for r in rounds:
            with contextlib.suppress(KeyError):
                got, top = r["doctor"][arm], r["doctor"]["cached"]
                gain = max(1.0, top["images_s"] / got["images_s"])
                out.append(
                    f"  doctor {arm:8s} {got['verdict']} (is {right}), {got['gain']:.2f} x as fast (is {gain:.2f}), "
                    f"{got['seconds']:.0f} s watched, {100 * got['overhead']:.2f}% of a core"
                )
    return "\n".join(out)


if __name__ == "__main__":
    main()
