"""Object servers for the benchmark: each on its own port, stopped with the program."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import runner

ROOT = runner.ROOT
ACCESS, SECRET = "STOKERBENCHACCESS", "stokerbenchsecret0123456789"
BUCKET = "bench"


class MissingError(Exception):
    """A required program or package is missing. The message names it."""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(500):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None:
            raise MissingError(f"{process.args!r} ended at once")
        time.sleep(0.02)
    raise MissingError(f"{process.args!r} takes no connections")


@contextlib.contextmanager
def _running(
    command: Sequence[str], log: Path, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=os.environ | (environment or {})
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def s3(folder: Path, work: Path) -> Iterator[str]:
    """Runs versitygw over a folder, with one bucket. Yields its URL."""
    tool = ROOT / "bin/tools/versitygw"
    if not tool.exists():
        raise MissingError("bin/tools/versitygw is not there; run make servers")
    (folder / BUCKET).mkdir(parents=True, exist_ok=True)
    meta = folder.with_name("meta-of-" + folder.name)  # it compares names by their beginning
    meta.mkdir(exist_ok=True)
    port = free_port()
    command = [str(tool), "--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet", "posix", "--sidecar", str(meta)]
    keys = {"ROOT_ACCESS_KEY_ID": ACCESS, "ROOT_SECRET_ACCESS_KEY": SECRET}
    with _running([*command, str(folder)], work / "logs/versitygw.log", keys) as p:
        _wait(port, p)
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def web(folder: Path, work: Path) -> Iterator[str]:
    """Runs nginx over a folder. Yields its URL."""
    tool = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(tool).exists():
        raise MissingError("nginx is not there (Debian: nginx-light)")
    port, at = free_port(), work / "nginx"
    at.mkdir(parents=True, exist_ok=True)
    (at / "nginx.conf").write_text(
        f"""daemon off; worker_processes 2; pid {at}/pid; error_log {at}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000;
  client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f;
  uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
  server {{ listen 127.0.0.1:{port}; root {folder}; autoindex on; autoindex_format json; }}
}}
"""
    )
    # Workers of root's nginx run as another user, who may not have access to every folder.
    user = ["-g", "user root;"] if os.getuid() == 0 else []
    command = [tool, "-e", str(at / "error.log"), "-c", str(at / "nginx.conf"), *user]
    with _running(command, work / "logs/nginx.log") as p:
        _wait(port, p)
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def throttled(
    target: str, tool: Path, latency: str, rate: float, listen: str = "127.0.0.1:0", jitter: str = "0s"
) -> Iterator[str]:
    """A proxy for a server that answers later and sends more slowly. Yields its URL."""
    command = [str(tool), "-how", "proxy", "-target", target, "-latency", latency, "-jitter", jitter]
    command += ["-rate", str(rate), "-listen", listen]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        assert p.stdin is not None and p.stdout is not None
        try:
            yield json.loads(p.stdout.readline())["url"]
        finally:
            p.stdin.close()
            p.terminate()
            p.wait()


def environment(url: str) -> dict[str, str]:
    """The environment variables for clients of the object server."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": url,
        "S3_ENDPOINT_URL": url,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ALLOW_HTTP": "true",
    }
