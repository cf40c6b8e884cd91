"""Packing and feeders on a Ray cluster. Ray places the processes on its nodes, and starts them again.

::

    import stoker.ray

    stoker.ray.pack("s3://my-bucket/photos/", "s3://my-bucket/train/", images="raw", resize=256)

    with stoker.ray.feeders("pipeline.json", insecure=True) as servers:     # "ray:feeders"
        TorchTrainer(train, train_loop_config={"feeders": servers}).fit()

Data and batches never enter Ray's object store.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import _pack
from ._ask import ask, run
from ._binary import environment, find_binary
from ._errors import ConfigError, EngineDied, StokerError, public, warn
from ._options import source_url, whole
from ._process import anonymous_file

__all__ = ["feeders", "pack"]

_PARTS = 4  # per node: a lost node costs at most a quarter of its share
_EVERY = 4.0  # seconds between two reads of the list of servers, and of Ray's nodes
_START = 60.0  # seconds to wait for the first answer of the servers


def __dir__() -> list[str]:
    return __all__


@public
def pack(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    parts: int | None = None,
    cpus: float | None = None,
    retries: int = 10,
    progress: bool | None = None,
    **options: Any,
) -> _pack.PackResult:
    """Pack the data at a path with all nodes of a Ray cluster. Nothing passes through Ray's object store.

    After an interruption, the same call continues with the parts that are not finished.

    Args:
        data: a path or URL that all nodes can open.
        out: a folder that all nodes share, or a URL.
        parts: the number of parts, 4 per node by default, or as many as a call before has begun.
        cpus: the CPUs of a part, by default those of the smallest node.
        retries: how often a part starts again after its process or node was lost. A machine that Ray reports as
            preempted does not count.
        progress: show the progress on the terminal, by default if there is one.
        **options: of ``stoker.pack``: ``images``, ``resize``, ``transforms``, ``shard_size``, ``restart``, ...

    Raises:
        StokerError: a part failed; the message names it. The other parts stop, and the same call continues.
    """
    source, to = os.fspath(data), os.fspath(out)
    if not ray.is_initialized():
        ray.init()
    nodes = [n["Resources"]["CPU"] for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
    if options.pop("restart", False):
        ask(["pack", "--clear", to], timeout=None)  # once, and not by each part
    if parts is None:
        state = run(["pack", "--begun", to])
        parts = 1 if state["whole"] else state["parts"] or _PARTS * max(len(nodes), 1)
    parts = whole("parts", parts, 1)
    if cpus is None:
        cpus = min(nodes, default=1)
    task = ray.remote(num_cpus=cpus, max_retries=retries, retry_exceptions=[EngineDied], scheduling_strategy="SPREAD")
    part = task(_part).options(name=f"stoker pack {to}")
    running = {part.remote(source, to, i, parts, max(int(cpus), 1), options): i for i in range(parts)}
    show = sys.stderr.isatty() if progress is None else progress
    try:
        while running:
            ended, _ = ray.wait(list(running), timeout=60)  # and look again: no wait is without end
            for one in ended:
                i = running.pop(one)
                try:
                    ray.get(one)
                except RayError as error:
                    why = error.cause if isinstance(error, RayTaskError) else error
                    raise StokerError(f"part {i}/{parts} of {to}: {why}") from None
            if show:
                print(f"\rpacking {to}: {parts - len(running)} of {parts} parts ", end="", file=sys.stderr, flush=True)
    finally:
        for one in running:
            ray.cancel(one, force=True)
        if show:
            print(file=sys.stderr)
    return _pack.commit_pack(to)


def _part(data: str, out: str, i: int, parts: int, threads: int, options: dict[str, Any]) -> None:
    _pack.pack(data, out, part=(i, parts), workers=threads, **options)


@public
@contextlib.contextmanager
def feeders(
    pipeline: str | os.PathLike[str],
    *,
    count: int | None = None,
    resources: Mapping[str, float] | None = None,
    name: str = "feeders",
    port: int = 0,
    data: str | os.PathLike[str] | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    flight_secret: str | os.PathLike[str] | None = None,
    insecure: bool = False,
) -> Iterator[str]:
    """Run a server (``stoker serve --flight``) on each node of a Ray cluster that builds batches for trainers.

    It gives ``"ray:NAME"``, for ``feeders=`` of the loaders of the same Ray job. An actor on each node starts the
    server again when it exits. Nodes that join later also get one. All of them end with the ``with`` block, and also
    if this process is killed.

    Args:
        pipeline: the file of ``loader.save_pipeline``. Only this process reads it.
        count: the number of actors. Ray then places them, which may add nodes. Default: one per node.
        resources: what each actor reserves, such as ``{"CPU": 16}``. By default nothing is reserved. One per node means
            each node that has these resources; by default each node without a GPU.
        name: the name of the servers, which are the named actors ``NAME/...``.
        port: the port of each server; 0 chooses a free one.
        data: the path or URL at which servers read the data. Default: that of the pipeline.
        tls_cert: the certificate of the servers, a file that is on each node. It names the IP address of the node.
            Loaders then connect with ``stoker.Feeders("ray:NAME", ca=...)``.
        tls_key: the key of the certificate.
        tls_ca: the authority of the certificates of trainers.
        flight_secret: the file with the secret of tokens.
        insecure: serve other machines without TLS, in a network that you trust.

    Raises:
        ConfigError: no node fits, or the name is in use.
        StokerError: no server started; the message has the reason of one.
    """
    port = whole("port", port, 0, 65535)
    count = None if count is None else whole("count", count, 1)
    with open(pipeline, encoding="utf-8") as file:
        text = file.read()
    files = {"tls-cert": tls_cert, "tls-key": tls_key, "tls-ca": tls_ca, "flight-secret": flight_secret}
    words = [f"--{key}={os.fspath(value)}" for key, value in files.items() if value is not None]
    words += [] if data is None else [f"--data={source_url(data)}"]
    words += ["--insecure"] * insecure
    if not ray.is_initialized():
        ray.init()
    reserved = dict(resources or {})
    actor = ray.remote(
        num_cpus=reserved.pop("CPU", 0), num_gpus=reserved.pop("GPU", 0), resources=reserved, max_restarts=-1
    )(_Feeder)
    actors: dict[str, Any] = {}

    def add() -> None:
        """Start the actors that are missing."""
        if count is None:
            nodes = [n["NodeID"] for n in ray.nodes() if n["Alive"] and _fits(n["Resources"], resources)]
            places: dict[str, Any] = {n: NodeAffinitySchedulingStrategy(n, soft=False) for n in nodes}
        else:
            places = {str(i): "SPREAD" for i in range(count)}
        for key, strategy in places.items():
            if key not in actors:
                options = actor.options(name=f"{name}/{key}", scheduling_strategy=strategy)
                actors[key] = options.remote(text, port, words)

    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_EVERY):
            with contextlib.suppress(RayError):
                add()

    watcher = threading.Thread(target=watch, daemon=True, name="stoker-ray-nodes")
    try:
        try:
            add()
        except ValueError as error:
            raise ConfigError(f"name={name!r}: {error}; choose another name") from None
        if not actors:
            why = f"no node has {dict(resources)}" if resources else "all nodes have GPUs"
            raise ConfigError(f'{why}; say what an actor needs, such as resources={{"CPU": 8}}')
        _wait(list(actors.values()))
        watcher.start()
        yield f"ray:{name}"
    finally:
        ended.set()
        if watcher.is_alive():
            watcher.join(2 * _EVERY)
        if ray.is_initialized():  # a call to Ray would otherwise start a cluster
            for one in actors.values():
                ray.kill(one)


def _fits(has: Mapping[str, float], wanted: Mapping[str, float] | None) -> bool:
    """Return whether a node can have a feeder."""
    return "GPU" not in has if wanted is None else all(has.get(key, 0) >= n for key, n in wanted.items())


def _states(actors: list[Any]) -> list[tuple[str, str]]:
    """Return address and failure of those servers whose actors answer."""
    refs = [one.state.remote() for one in actors]
    done = ray.wait(refs, num_returns=len(refs), timeout=_EVERY)[0] if refs else []
    states = []
    for ref in done:
        with contextlib.suppress(RayError):  # the actor is being started again
            states.append(ray.get(ref))
    return states


def _wait(actors: list[Any]) -> None:
    """Wait until each server has started or failed, or for a minute: large data opens slowly."""
    end = time.monotonic() + _START
    while time.monotonic() < end:
        states = _states(actors)
        failures = [failure for _, failure in states if failure]
        if len(failures) == len(actors):
            raise StokerError(f"no feeder starts: {failures[0]}")
        if len(failures) + sum(bool(address) for address, _ in states) == len(actors):
            return
        time.sleep(0.2)


class _Feeder:
    """The actor of a node: it keeps ``stoker serve --flight`` running. The server exits with the actor's process."""

    def __init__(self, pipeline: str, port: int, words: list[str]) -> None:
        self._state = ("", "")
        threading.Thread(target=self._run, args=(pipeline, port, words), daemon=True).start()

    def state(self) -> tuple[str, str]:
        """Return the address of the server, or why it does not run; two empty texts while it starts."""
        return self._state

    def _run(self, pipeline: str, port: int, words: list[str]) -> None:
        pause = 1.0
        while True:
            try:
                served, failure = self._serve(pipeline, port, words)
            except (OSError, StokerError) as error:
                served, failure = False, str(error)
            self._state = ("", failure)
            pause = 1.0 if served else min(2 * pause, 30.0)
            time.sleep(pause)

    def _serve(self, pipeline: str, port: int, words: list[str]) -> tuple[bool, str]:
        """Run a server until it exits. Return whether it served, and its last line."""
        host = ray.util.get_node_ip_address()
        at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        command = [find_binary(), "serve", "--flight", at, "--config", "/dev/stdin", f"--parent={os.getpid()}", *words]
        served, last = False, "it ended without a message"
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        ) as process:
            assert process.stdin is not None and process.stderr is not None
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(pipeline)
            for line in process.stderr:
                print(line, end="", file=sys.stderr, flush=True)
                last = line.strip() or last
                if found := re.search(r"msg=serving flight=(\S+)", line):
                    self._state, served = (found[1], ""), True
        return served, last


class Members:
    """The servers of ``stoker.ray.feeders``, as a file for the engine that is written again every 4 s.

    The file is in memory and has no name: the engine opens it as ``/proc/PID/fd/N``. So nothing is left when this
    process is killed.
    """

    def __init__(self, name: str) -> None:
        if not ray.is_initialized():
            raise ConfigError(
                f'feeders="ray:{name}": this process is not part of a Ray job; make the loader in the training function'
            )
        self._name, self._text = name, ""
        self._fd = anonymous_file("stoker-feeders")
        self._end = threading.Event()
        self.servers = f"file:/proc/{os.getpid()}/fd/{self._fd}"
        try:
            if not self._update():
                warn(
                    f'feeders="ray:{name}": there is no actor of stoker.ray.feeders(..., name={name!r}) yet',
                    RuntimeWarning,
                )
        except BaseException:
            os.close(self._fd)
            raise
        threading.Thread(target=self._run, daemon=True, name="stoker-ray-feeders").start()

    def close(self) -> None:
        """Stop reading. The thread closes the file."""
        self._end.set()

    def _run(self) -> None:
        while not self._end.wait(_EVERY):
            # Ray raises many errors while it loses a node. The last list stays in use.
            with contextlib.suppress(Exception):
                if ray.is_initialized():  # a call to Ray would otherwise start a cluster
                    self._update()
        os.close(self._fd)

    def _update(self) -> int:
        """Write the addresses, and return the number of actors."""
        actors = []
        for full in ray.util.list_named_actors():
            if full.startswith(f"{self._name}/"):
                with contextlib.suppress(ValueError):  # it has ended meanwhile
                    actors.append(ray.get_actor(full))
        text = "".join(sorted(f"{address}\n" for address, _ in _states(actors) if address))
        if text != self._text:
            new = anonymous_file("stoker-feeders")
            os.write(new, text.encode())
            os.dup2(new, self._fd, inheritable=False)  # the engine sees the old list or the new one
            os.close(new)
            self._text = text
        return len(actors)
