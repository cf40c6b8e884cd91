"""Batches that servers build (``stoker serve --flight``)."""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import transforms as T

HOW: dict[str, Any] = {
    "batch_size": 16,
    "shuffle": True,
    "seed": 3,
    "transforms": {"image": [T.RandomResizedCrop(32), T.RandomHorizontalFlip()]},
}


def digest(loader: stoker.Loader, epochs: int) -> list[str]:
    """Return a hash of each batch."""
    out = []
    for _ in range(epochs):
        for batch in loader:
            h = hashlib.sha256()
            for name in ("image", "label", "index"):
                h.update(np.ascontiguousarray(batch[name]).tobytes())
            out.append(h.hexdigest())
    return out


class Server:
    """A server process and what it logs when it starts."""

    def __init__(self, binary: str, *args: str) -> None:
        self.process = subprocess.Popen(
            [binary, "serve", "--flight", "127.0.0.1:0", *args], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        self.line = self.process.stderr.readline()
        found = dict(re.findall(r"(\w+)=(\S+)", self.line))
        assert "flight" in found, self.line + self.process.stderr.read()
        self.address, self.manifest, self.pipeline = found["flight"], found["manifest"], found["pipeline"]

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


@pytest.fixture
def server(binary: str) -> Iterator[Callable[..., Server]]:
    """Start servers and end them at the end."""
    started: list[Server] = []

    def start(*args: str) -> Server:
        started.append(Server(binary, *args))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.fixture
def pipeline(pack: Path, tmp_path: Path, make: Callable[..., stoker.Loader]) -> Path:
    """Return the file with the pipeline of ``HOW``."""
    path = tmp_path / "pipeline.json"
    make(pack, **HOW).save_pipeline(path)
    return path


def test_feeders_give_the_same_batches(
    pack: Path,
    pipeline: Path,
    server: Callable[..., Server],
    make: Callable[..., stoker.Loader],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    want = digest(make(pack, **HOW), 2)
    servers = [server("--config", str(pipeline)) for _ in range(2)]
    # Slow reads on this machine only, so that servers are needed.
    monkeypatch.setenv("STOKER_TEST_FAULTS", "delay=30ms")
    loader = make(pack, **HOW, threads=1, cache=False, feeders=",".join(s.address for s in servers))
    got = digest(loader, 1)
    servers[0].end()
    got += digest(loader, 1)
    assert got == want
    stats = loader.stats()["engine"]["feeders"]
    assert stats["batches"] > 0
    assert stats["different"] == 0
    assert stats["compared"] > 0


def test_feeders_that_are_refused(pack: Path) -> None:
    with pytest.raises(stoker.ConfigError, match="unencrypted"):
        stoker.Loader(pack, **HOW, feeders="10.1.2.3:7443")
    with pytest.raises(stoker.ConfigError, match="not the address of a server"):
        stoker.Loader(pack, **HOW, feeders="nowhere")
    with pytest.raises(stoker.ConfigError, match=r"feeders must be a stoker.Feeders\(...\), a text"):
        stoker.Loader(pack, **HOW, feeders=7443)  # type: ignore[arg-type]


def test_feeders_of_a_mixture(
    server: Callable[..., Server], make: Callable[..., stoker.Loader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = []
    for name, n in ("a", 90), ("b", 31):
        parts.append(tmp_path / f"{name}.jsonl")
        parts[-1].write_text("".join(json.dumps({"x": i, "text": f"{name} {i}"}) + "\n" for i in range(n)))
    config = tmp_path / "pipeline.json"
    plain = make(stoker.mix({parts[0]: 3, parts[1]: 1}), 8, shuffle=True, seed=2)
    plain.save_pipeline(config)
    want = [(b["x"].tolist(), list(b["text"])) for _ in range(2) for b in plain]
    one = server("--config", str(config))
    monkeypatch.setenv("STOKER_TEST_FAULTS", "delay=30ms")
    fed = make(
        stoker.mix({parts[0]: 3, parts[1]: 1}), 8, shuffle=True, seed=2, threads=1, cache=False, feeders=one.address
    )
    assert [(b["x"].tolist(), list(b["text"])) for _ in range(2) for b in fed] == want
    stats = fed.stats()["engine"]["feeders"]
    assert stats["different"] == 0
    assert stats["failed"] == 0
    # Servers do not know weights that were changed by hand.
    for loader in (plain, fed):
        loader.set_weights({parts[0]: 1, parts[1]: 1})
    want = [(b["x"].tolist(), list(b["text"])) for b in plain]
    assert [(b["x"].tolist(), list(b["text"])) for b in fed] == want
    assert fed.stats()["engine"]["feeders"]["batches"] == 0


def test_torch_refuses_feeders() -> None:
    torch = pytest.importorskip("stoker.torch")
    with pytest.raises(stoker.ConfigError, match=r"takes records from its sampler: use stoker\.Loader"):
        torch.DataLoader([1, 2, 3], feeders="127.0.0.1:7443")


def test_a_server_ends_with_its_parent(binary: str, pipeline: Path) -> None:
    """An actor of Ray is killed, and its server must not stay."""
    command = [binary, "serve", "--flight", "127.0.0.1:0", "--config", "/dev/stdin", "--parent", "1"]
    done = subprocess.run(command, input=pipeline.read_bytes(), capture_output=True, check=False, timeout=60)
    assert done.returncode in (0, 130)


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="has Ray")
def test_feeders_of_ray_need_ray(pack: Path) -> None:
    with pytest.raises(stoker.ConfigError, match="pip install ray"):
        stoker.Loader(pack, **HOW, feeders="ray:feeders")


def sign(token: str, ticket: bytes) -> bytes:
    """Return the header of a request, as docs/reference/tickets.md describes it."""
    import base64

    def b64(b: bytes) -> str:
        return base64.urlsafe_b64encode(b).decode().rstrip("=")

    _, claims, key = token.strip().split(".")
    once = int(time.time()).to_bytes(8, "big") + os.urandom(16)
    proof = hmac.new(base64.urlsafe_b64decode(key + "=="), digestmod="sha256")
    for part in (claims.encode(), once, ticket):
        proof.update(len(part).to_bytes(8, "little") + part)
    return f"Stoker {claims}.{b64(once)}.{b64(proof.digest())}".encode()


def test_pyarrow_reads_a_ticket(
    binary: str,
    pack: Path,
    pipeline: Path,
    tmp_path: Path,
    server: Callable[..., Server],
    make: Callable[..., stoker.Loader],
) -> None:
    flight = pytest.importorskip("pyarrow.flight")
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret of at least 16 bytes")
    one = server("--config", str(pipeline), "--flight-secret", str(secret))
    token = subprocess.run(
        [binary, "token", "--secret", str(secret), one.manifest, one.pipeline],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    ticket = json.dumps(
        {"manifest": one.manifest, "pipeline": one.pipeline, "seed": 3, "epoch": 0, "batch": 1, "rows": [16, 32]}
    ).encode()
    client = flight.FlightClient(f"grpc://{one.address}")
    with pytest.raises(flight.FlightUnauthenticatedError, match="no token"):
        client.do_get(flight.Ticket(ticket)).read_all()
    header = sign(token, ticket)
    options = flight.FlightCallOptions(headers=[(b"authorization", header)])
    table = client.do_get(flight.Ticket(ticket), options).read_all()
    batches = iter(make(pack, **HOW))
    next(batches)
    batch = next(batches)
    assert table.num_rows == 16
    assert table["label"].to_pylist() == batch["label"].tolist()
    images = table["image"].combine_chunks()
    assert (np.concatenate([c.to_numpy_ndarray() for c in getattr(images, "chunks", [images])]) == batch["image"]).all()
    assert json.loads(table.schema.metadata[b"stoker"])["rows"] == 16
    with pytest.raises(flight.FlightUnauthenticatedError, match="sent before"):
        client.do_get(flight.Ticket(ticket), options).read_all()
    client.close()
