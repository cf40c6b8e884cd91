"""Data in buckets: packed into one, gone on with, trained from, and nothing told of the credentials."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker import transforms as T
from support import answers, children, cli, free_port, wait_for

Make = Callable[..., stoker.Loader]

ACCESS, SECRET = "STOKERTESTACCESS", "stokertestsecret0123456789abcdef"
BUCKET = "test-bucket"


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A server of S3 with a bucket, which is a folder. It gives that folder."""
    server = Path(__file__).parents[2] / "bin/tools/versitygw"
    if not server.exists():
        pytest.skip("versitygw is not there: make servers builds it")
    data, meta = tmp_path / "server/data", tmp_path / "server/meta"
    (data / BUCKET).mkdir(parents=True)
    meta.mkdir()
    port = free_port()
    own = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    own |= {"ROOT_ACCESS_KEY_ID": ACCESS, "ROOT_SECRET_ACCESS_KEY": SECRET}
    command = [server, "--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet", "posix", "--sidecar", meta, data]
    process = subprocess.Popen(command, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    for name in [k for k in os.environ if k.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    try:
        wait_for(lambda: answers(port))
        yield data / BUCKET
    finally:
        process.kill()
        process.wait()


def visible(bucket: Path) -> list[str]:
    """The objects that are whole."""
    files = (p for p in bucket.rglob("*") if p.is_file() and ".sgwtmp" not in p.parts)
    return sorted(str(p.relative_to(bucket)) for p in files if ".partial/" not in str(p))


def test_pack_into_a_bucket_and_train(binary: str, photos: Path, make: Make, tmp_path: Path, s3: Path) -> None:
    cli(binary, "pack", photos, tmp_path / "local")
    cli(binary, "pack", photos, f"s3://{BUCKET}/packs/train")
    names = sorted(p.name for p in (tmp_path / "local").iterdir())
    assert visible(s3) == [f"packs/train/{n}" for n in names]
    for name in names:
        if name.endswith(".arrow"):
            assert (s3 / "packs/train" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
    assert "is whole" in cli(binary, "verify", f"s3://{BUCKET}/packs/train")
    assert "records" in cli(binary, "inspect", f"s3://{BUCKET}/packs/train")

    def load(path: object) -> stoker.Loader:
        crop = [T.RandomResizedCrop(32), T.RandomHorizontalFlip()]
        return make(path, batch_size=16, shuffle=True, seed=4, transforms={"image": crop})

    here, there = load(tmp_path / "local"), load(f"s3://{BUCKET}/packs/train")
    for _ in range(2):
        for a, b in zip(here, there, strict=True):
            assert np.array_equal(a["image"], b["image"])
            assert np.array_equal(a["label"], b["label"])

    # The loader's own state and the process list contain no credentials.
    assert SECRET not in json.dumps(there.state_dict()) and SECRET not in json.dumps(there.stats())
    for pid in [os.getpid(), *children(os.getpid())]:
        shown = Path(f"/proc/{pid}/cmdline").read_bytes() if Path(f"/proc/{pid}").exists() else b""
        assert SECRET.encode() not in shown and ACCESS.encode() not in shown


@pytest.mark.parametrize("form", ["folder", "tar", "zip", "csv"])
def test_formats(form: str, photos: Path, make: Make, tmp_path: Path, s3: Path) -> None:
    here, there = tmp_path / "data", f"s3://{BUCKET}/data"
    if form in ("tar", "zip"):
        shutil.make_archive(str(here), form, photos)
        here, there = tmp_path / f"data.{form}", f"{there}.{form}"
        shutil.copy(here, s3)
    else:
        shutil.copytree(photos, here)
        if form == "csv":
            files = sorted(p.relative_to(here) for p in here.rglob("*.jpg"))
            (here / "list.csv").write_text("path,label\n" + "".join(f"{f},{f.parent.name}\n" for f in files))
        shutil.copytree(here, s3 / "data")
    query = "/list.csv?image:image=path&label:label=label" if form == "csv" else ""
    crop = {"image": [T.CenterCrop(48)]}
    a = make(f"{here}{query}", batch_size=16, shuffle=True, seed=1, transforms=crop, cache=False)
    b = make(f"{there}{query}", batch_size=16, shuffle=True, seed=1, transforms=crop, cache=False)
    for x, y in zip(a, b, strict=True):
        assert np.array_equal(x["image"], y["image"])
        assert np.array_equal(x["label"], y["label"])


FILES = ["tfrecord", "parquet", "arrow", "mds", "h5", "npz", "jsonl", "csv", "tar", "lmdb"]
WRITTEN = [*(f"x.{end}" for end in FILES), "npy:x", "tar:x"]


@pytest.mark.parametrize("form", WRITTEN)
def test_every_form_that_is_written(form: str, binary: str, make: Make, tmp_path: Path, s3: Path) -> None:
    """A form that convert wrote is read from a bucket with the same result as from a local disk."""
    (tmp_path / "rows").mkdir()
    for name, values in (("x", np.arange(540, dtype=np.float32).reshape(90, 6)), ("y", np.arange(90))):
        np.save(tmp_path / f"rows/{name}.npy", values)
    kind, _, name = form.rpartition(":")
    kind += ":" if kind else ""
    # If the keys are per value, only one field is read.
    of = ["--field", "x"] if form == "x.lmdb" else []
    cli(binary, "convert", f"npy:{tmp_path / 'rows'}", f"{kind}{tmp_path / name}", *of)
    (shutil.copytree if (tmp_path / name).is_dir() else shutil.copy)(tmp_path / name, s3 / name)
    for order in (True, "window:2"):
        a, b = (make(f"{kind}{at}/{name}", 16, shuffle=order, seed=1) for at in (tmp_path, f"s3://{BUCKET}"))
        here, there = ([dict(batch.copy()) for batch in loader] for loader in (a, b))
        assert sum(len(batch["index"]) for batch in here) == 90
        for x, y in zip(here, there, strict=True):
            assert x.keys() == y.keys() > {"index"}
            for field in x:
                assert np.array_equal(np.asarray(x[field]), np.asarray(y[field])), field
        a.close()
        b.close()


def test_interrupted_packing_goes_on(binary: str, tmp_path: Path, s3: Path) -> None:
    cli(binary, "gen", "images", tmp_path / "photos", "--count", "250")
    photos, to = tmp_path / "photos", f"s3://{BUCKET}/train"
    command = [binary, "pack", photos, to, "--shard-size", "16MiB", "--threads", "1"]
    for n, how in enumerate((signal.SIGKILL, signal.SIGINT, signal.SIGKILL)):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

        def some(n: int = n, process: subprocess.Popen[str] = process) -> bool:
            shards = 0
            for folder, below, files in os.walk(s3):  # which passes over what goes away meanwhile
                shards += sum(f.startswith("shard-") for f in files)
                shards += Path(folder).name.startswith("shard-") and bool(below or files)
            return process.poll() is not None or shards > n

        wait_for(some)
        process.send_signal(how)
        _, said = process.communicate()
        if process.returncode == 0:
            break  # it was faster
        assert process.returncode in (-signal.SIGKILL, 130), said
        assert "train/manifest.json" not in visible(s3)
        assert SECRET not in said
        # An unfinished pack is never detected as a pack. The message depends on its progress.
        said = cli(binary, "verify", to, code=1)
        assert "is an unfinished pack" in said or "is not a pack" in said
    cli(binary, *command[1:])
    cli(binary, "pack", photos, tmp_path / "whole", "--shard-size", "16MiB")
    names = sorted(p.name for p in (tmp_path / "whole").iterdir())
    assert visible(s3) == [f"train/{n}" for n in names]
    for name in names:
        if name.endswith(".arrow"):
            assert (s3 / "train" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not [p for p in s3.rglob("*.partial") if p.is_dir() and any(p.iterdir())]


def test_credentials_are_not_told(
    binary: str, photos: Path, tmp_path: Path, s3: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = f"s3://{BUCKET}/train"
    said = cli(binary, "pack", photos, to)
    wrong = "wrongsecret9876543210"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", wrong)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for args in (["inspect", to], ["verify", to], ["pack", photos, f"{to}2"], ["pack", to, tmp_path / "x"]):
        said += cli(binary, *args, code=1)
    with pytest.raises(stoker.StokerError) as e:
        stoker.Loader(to, batch_size=4)
    said += str(e.value)
    assert "the credentials are not accepted" in said
    said += cli(binary, "inspect", f"s3://{ACCESS}:{SECRET}@{BUCKET}/train", code=1)
    for text in (SECRET, wrong):
        assert text not in said
        for file in [*(tmp_path / "server").rglob("*"), *(tmp_path / "home").rglob("*"), *(tmp_path / "x").rglob("*")]:
            assert not file.is_file() or text.encode() not in file.read_bytes(), file


def test_plan_prices_an_epoch(binary: str, photos: Path, s3: Path) -> None:
    cli(binary, "pack", photos, f"s3://{BUCKET}/train")
    said = json.loads(
        cli(binary, "plan", f"s3://{BUCKET}/train", "--batch", "16", "--step", "50ms", "--no-probe", "--json")
    )
    cost = said["bucket"]
    images = sum(1 for p in photos.rglob("*") if p.is_file())
    assert cost["requests"] == images and 0 < cost["requests_window"] <= images
    assert cost["price"] == pytest.approx(cost["requests"] * cost["price_per_million_gets"] / 1e6)


def test_other_forms_in_buckets(binary: str, pack: Path, photos: Path, tmp_path: Path, s3: Path) -> None:
    """A bucket gets the same files as a folder from convert and gen, and nothing is overwritten."""
    for to, local in ((f"tar:s3://{BUCKET}/out", "tar:out"), (f"s3://{BUCKET}/deep/out.parquet", "out.parquet")):
        cli(binary, "convert", pack, to)
        kind, _, name = local.rpartition(":")
        cli(binary, "convert", pack, f"{kind}:{tmp_path / name}" if kind else tmp_path / name)
        here, there = tmp_path / name, s3 / to.partition(f"{BUCKET}/")[2]
        files = [p.relative_to(here) for p in here.rglob("*") if p.is_file()] if here.is_dir() else [Path()]
        assert files
        for file in files:
            assert (there / file).read_bytes() == (here / file).read_bytes()
        assert "already exists" in cli(binary, "convert", pack, to, code=1)
    cli(binary, "convert", f"s3://{BUCKET}/out", f"s3://{BUCKET}/images")
    assert sum(p.is_file() for p in (s3 / "images").rglob("*")) == sum(p.is_file() for p in photos.rglob("*"))
    assert "its own source" in cli(binary, "convert", f"s3://{BUCKET}/images", f"tar:s3://{BUCKET}/images/out", code=1)
    few = ("--count", "6", "--classes", "2", "--size", "48x48")
    made = tmp_path / "made"
    cli(binary, "gen", "images", f"s3://{BUCKET}/made", *few)
    cli(binary, "gen", "images", made, *few)
    for file in (p for p in made.rglob("*") if p.is_file()):
        assert (s3 / "made" / file.relative_to(made)).read_bytes() == file.read_bytes()
    cli(binary, "gen", "images", f"s3://{BUCKET}/packed", *few, "--pack")
    assert "6 records" in cli(binary, "inspect", f"s3://{BUCKET}/packed")
    assert "already exists" in cli(binary, "gen", "images", f"s3://{BUCKET}/made", *few, code=1)


SCRIPT = """
import sys, time
sys.path.insert(0, {tests!r})
import stoker
from test_remote import Samples

class Slow(Samples):
    def __getitem__(self, i):
        if i == 400 and len(sys.argv) > 1:
            print("there", flush=True)
            time.sleep(60)
        return super().__getitem__(i)

if __name__ == "__main__":
    print(stoker.pack(Slow(), {out!r}, workers=2, shard_size="20KiB", name="samples").records)
"""


class Samples:
    """A Python dataset: an array and a number."""

    def __len__(self) -> int:
        return 600

    def __getitem__(self, i: int) -> dict[str, object]:
        return {"x": np.full((8, 4), i, np.float32), "label": i % 10}


def content(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_what_python_has(tmp_path: Path, s3: Path, monkeypatch: pytest.MonkeyPatch, how: int) -> None:
    """A dataset is packed into a bucket. It continues after an interruption, and is a pack only when it is complete."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    to = f"s3://{BUCKET}/python/train"
    stoker.pack(Samples(), tmp_path / "local", workers=0, shard_size="20KiB", name="samples")
    script = tmp_path / "x.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parent), out=to))
    command = [sys.executable, str(script)]
    with subprocess.Popen(
        [*command, "wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"there\n"
        wait_for(lambda: any("piece-" in name for name in visible(s3)), 30)
        os.killpg(child.pid, how)
        child.communicate()
    assert not any(name.endswith("manifest.json") for name in visible(s3))
    with pytest.raises(stoker.StokerError):
        stoker.Loader(to, batch_size=4)
    # A process that does not know the unfinished pack does not write into it.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    with pytest.raises(stoker.ConfigError, match="on another machine, or was in"):
        stoker.pack(Samples(), to, workers=0, shard_size="20KiB", name="samples")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.stdout == "600\n", again.stderr
    assert content(s3 / "python/train") == content(tmp_path / "local")
    assert not any((tmp_path / "cache/stoker-packing").iterdir())
    # An existing pack is not packed again, and no other data replaces it.
    assert stoker.pack(Samples(), to, workers=0, shard_size="20KiB", name="samples").unchanged
    with pytest.raises(stoker.ConfigError, match="is a finished pack of samples, and not of others"):
        stoker.pack(Samples(), to, name="others")
    few = stoker.pack([{"x": np.float32(i)} for i in range(20)], to, workers=0, name="others", restart=True)
    assert (few.path, few.records) == (to, 20)
    assert sorted(visible(s3)) == ["python/train/manifest.json", "python/train/shard-00000-00000.arrow"]
    with stoker.Loader(to, batch_size=20) as loader:
        assert next(iter(loader)).x.tolist() == list(range(20))


def test_tensors_of_what_python_has(tmp_path: Path, s3: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = [{"age": float(i), "city": ["Bern", "Oslo"][i % 2]} for i in range(40)]
    tensors = {"x": ["age:normalize", "city:onehot"]}
    to = f"s3://{BUCKET}/rows"
    assert stoker.pack(rows, to, tensors=tensors, workers=0).records == 40
    stoker.pack(rows, tmp_path / "rows", tensors=tensors, workers=0)
    with stoker.Loader(to, batch_size=40) as there, stoker.Loader(tmp_path / "rows", batch_size=40) as here:
        assert np.array_equal(next(iter(there)).x, next(iter(here)).x)
    assert stoker.pack(rows, to, tensors=tensors, workers=0).unchanged
    assert not [p for p in (tmp_path / "cache/stoker-packing").iterdir() if p.name.endswith("columns")]


def test_variants(binary: str, photos: Path, make: Make, tmp_path: Path, s3: Path) -> None:
    """A pack with variants is the same in a bucket, also if the source is in a bucket."""
    shutil.copytree(photos, s3 / "photos")
    flags = ["--transforms", "RandomResizedCrop(32),RandomHorizontalFlip", "--augment", "3"]
    cli(binary, "pack", photos, tmp_path / "local", *flags)
    cli(binary, "pack", f"s3://{BUCKET}/photos", f"s3://{BUCKET}/varied", *flags)
    for order in (True, "window:2"):
        here, there = (make(p, 16, shuffle=order, seed=4) for p in (tmp_path / "local", f"s3://{BUCKET}/varied"))
        for _ in range(2):
            for a, b in zip(here, there, strict=True):
                assert np.array_equal(a.image, b.image) and np.array_equal(a.index, b.index)
