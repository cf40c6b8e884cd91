"""Data on web servers: every form as from a disk, in few questions, and nothing told of a URL's query."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker import transforms as T
from support import answers, children, cli, free_port, same_batches, wait_for

Make = Callable[..., stoker.Loader]

CONF = """daemon off; {user} pid {work}/pid; error_log stderr; worker_processes 1;
events {{ worker_connections 512; }}
http {{ access_log {work}/log; client_body_temp_path {work}/b; proxy_temp_path {work}/p; fastcgi_temp_path {work}/f;
uwsgi_temp_path {work}/u; scgi_temp_path {work}/s; keepalive_requests 100000;
server {{ listen 127.0.0.1:{port}; root "{data}";
location / {{ autoindex on; autoindex_format json; }} location /bare/ {{ alias "{data}/"; }} }} }}
"""


class Web:
    """An nginx, its folder, and the log of its requests."""

    def __init__(self, work: Path) -> None:
        program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        if program is None:
            pytest.skip("there is no nginx here (Debian: nginx-light)")
        self.data, self._log = work / "data", work / "log"
        self.data.mkdir()
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        user = "user root;" if os.getuid() == 0 else ""
        (work / "conf").write_text(CONF.format(user=user, work=work, port=self._port, data=self.data))
        self._process = subprocess.Popen([program, "-p", work, "-c", work / "conf"], stderr=subprocess.DEVNULL)
        wait_for(lambda: answers(self._port))

    def asked(self, method: str) -> list[str]:
        """Return the requests with a method so far."""
        return [line for line in self._log.read_text().splitlines() if f'"{method} ' in line]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    """A web server."""
    (tmp_path / "web").mkdir()
    server = Web(tmp_path / "web")
    yield server
    server.close()


def test_pack(binary: str, photos: Path, make: Make, web: Web) -> None:
    cli(binary, "pack", photos, web.data / "train")
    for place in ("train", "bare/train"):  # a pack needs no list
        assert "is whole" in cli(binary, "verify", f"{web.url}/{place}")
        assert "records" in cli(binary, "inspect", f"{web.url}/{place}")
        crop = {"image": [T.RandomResizedCrop(32)]}
        there = make(f"{web.url}/{place}?token=hunter2", batch_size=16, shuffle=True, seed=4, transforms=crop)
        same_batches(make(web.data / "train", batch_size=16, shuffle=True, seed=4, transforms=crop), there)
        told = json.dumps([there.state_dict(), there.stats(), there.info])
        assert "hunter2" not in told
        (network,) = there.stats()["engine"]["network"]
        assert network["endpoint"] == web.url
        assert network["requests"] > 0 < network["bytes"]
        assert network["throttled"] == 0 <= network["p50_ns"] <= network["p99_ns"]
        assert there.stats()["engine"]["hedges"] >= 0


@pytest.mark.parametrize("form", ["folder", "tar", "zip", "csv", "npy", "npz", "shards"])
def test_formats(form: str, photos: Path, make: Make, web: Web) -> None:
    name, options, fields = "data", "", {"image": [T.CenterCrop(48)]}
    if form in ("tar", "zip"):
        shutil.make_archive(str(web.data / "data"), form, photos)
        name = f"data.{form}"
    elif form == "shards":
        for i in range(2):
            shutil.make_archive(str(web.data / f"s-{i}"), "tar", photos)
        name = "s-{0..1}.tar"
    elif form == "npy":
        np.save(web.data / "data.npy", np.arange(10_000, dtype=np.int32))
        name, options, fields = "data.npy", "?window=100", {}
    elif form == "npz":
        np.savez(web.data / "data.npz", x=np.arange(600).reshape(100, 6), y=np.arange(100))
        name, fields = "data.npz", {}
    else:
        shutil.copytree(photos, web.data / "data")
        if form == "csv":
            files = sorted(p.relative_to(web.data / "data") for p in (web.data / "data").rglob("*.jpg"))
            rows = "".join(f"{f},{f.parent.name}\n" for f in files)
            (web.data / "data/list.csv").write_text("path,label\n" + rows)
            name, options = "data/list.csv", "?image:image=path&label:label=label"
    arguments = {"batch_size": 16, "shuffle": True, "seed": 1, "transforms": fields or None}
    arguments = {k: v for k, v in arguments.items() if v is not None}
    here = make(f"{web.data}/{name}{options}", **arguments)
    # Text after a question mark is for the server, text after #? is for Stoker.
    same_batches(here, make(f"{web.url}/{name}?token=x{'#' if options else ''}{options}", **arguments))


def test_source_of_pack_and_convert(binary: str, photos: Path, web: Web, tmp_path: Path) -> None:
    shutil.copytree(photos, web.data / "photos")
    cli(binary, "pack", f"{web.url}/photos?token=hunter2", tmp_path / "there")
    cli(binary, "pack", photos, tmp_path / "here")
    assert "hunter2" not in (tmp_path / "there/manifest.json").read_text()
    for shard in (tmp_path / "here").glob("*.arrow"):
        assert shard.read_bytes() == (tmp_path / "there" / shard.name).read_bytes()
    # One HEAD checks whether the entity tags equal those in the list.
    heads = [line for line in web.asked("HEAD") if ".jpg" in line]
    assert len(heads) <= 4
    cli(binary, "convert", f"{web.url}/photos", f"tar:{tmp_path / 'tar'}")
    assert list((tmp_path / "tar").glob("*.tar"))


def test_refusals(binary: str, photos: Path, web: Web) -> None:
    shutil.copytree(photos, web.data / "photos")
    np.save(web.data / "x.npy", np.arange(10))
    said = cli(binary, "inspect", f"{web.url}/bare/photos?token=hunter2", code=1)
    assert "the web server does not list the folder" in said
    said = cli(binary, "inspect", f"{web.url}/x.npy?window=5", code=1)
    assert "is sent to the server; write #?window=5" in said
    said = cli(binary, "inspect", f"{web.url}/none.npy?token=hunter2", code=1)
    assert "does not exist" in said
    assert "hunter2" not in said
    with pytest.raises(stoker.StokerError) as failure:
        stoker.Loader(f"http://me:hunter2@{web.url[7:]}/none?token=hunter2", batch_size=1)
    assert "hunter2" not in str(failure.value)
    said = cli(binary, "pack", web.data / "photos", f"{web.url}/to?token=hunter2", code=1)
    assert "cannot be written to" in said
    assert "hunter2" not in said


def test_secrets_of_urls(
    binary: str, photos: Path, web: Web, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """User, password and query of a URL appear in no message and no file, and other users cannot read the files."""
    own = {v: tmp_path / v for v in ("XDG_CACHE_HOME", "STOKER_CACHE_DIR", "STOKER_RUNTIME_DIR", "HOME")}
    for name, folder in own.items():
        monkeypatch.setenv(name, str(folder))
    shutil.copytree(photos, web.data / "photos")
    cli(binary, "pack", photos, web.data / "train")
    shutil.copytree(web.data / "train", web.data / "broken")
    with next((web.data / "broken").glob("*.arrow")).open("r+b") as f:
        f.seek(100_000)
        f.write(b"damage")

    def at(place: str) -> str:
        return f"{web.url.replace('//', '//me:hunter2@')}/{place}?token=hunter2"

    made, few = tmp_path / "made", ("--batch", "8", "--step", "10ms", "--no-probe")
    for code, *command in (
        (0, "inspect", at("train")), (0, "inspect", at("train"), "--row", "1"), (0, "inspect", at("photos/"), "--json"),
        (1, "inspect", at("photos/"), "--row", "1"), (0, "verify", at("train")), (0, "verify", at("train"), "--json"),
        (4, "verify", at("broken")), (1, "verify", at("photos")), (0, "pack", at("photos/"), made / "packed"),
        (0, "convert", at("train"), made / "x.parquet"), (2, "convert", at("train"), f"pack:{at('y')}", "--to", "tar"),
        (0, "cache", "warm", at("train")), (0, "cache", "warm", at("photos/")), (0, "cache", "ls", "--json"),
        (2, "cache", "rm", "--all", at("train")), (0, "cache", "verify", at("train")), (0, "plan", at("train"), *few),
        (0, "plan", at("train"), *few, "--json"), (0, "bench", at("train"), "--seconds", "1", "--no-what-if"),
        (0, "probe", at("train"), "--seconds", "3"), (0, "probe", at("train"), "--last", "--json"),
    ):  # fmt: skip
        assert "hunter2" not in cli(binary, *command, code=code), command
    for where in (stoker.Cache(dir=tmp_path / "near"), stoker.Cache(stage=tmp_path / "scratch")):
        loader = make(at("train"), batch_size=64, transforms={"image": [T.CenterCrop(48)]}, cache=where)
        assert sum(len(b.index) for b in loader) == 203
        told = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children(os.getpid()))
        assert b"hunter2" not in told
        loader.close()
    kept = [p for f in (*own.values(), made, tmp_path / "near", tmp_path / "scratch") for p in f.rglob("*")]
    files = [p for p in kept if p.is_file()]
    assert len(files) > 15
    for p in files:
        assert b"hunter2" not in p.read_bytes(), p
    for p in kept:
        assert made in p.parents or p.stat().st_mode & 0o077 == 0, p
