"""The sources of the scripts: a given checkout, or the repository itself, at the given commit."""

from __future__ import annotations

import importlib.metadata
import io
import subprocess
import tarfile
from pathlib import Path

from . import Script

_HOST = "https://github.com/"
# Seconds that a download may take.
_LIMIT = 300


class UnavailableError(Exception):
    """A script is not available here. The message has the reason."""


def get(script: Script, given: Path | None, work: Path) -> tuple[Path, str]:
    """The files of a script's folders, and the commit that they are of.

    `given` has clones, also bare ones, in folders called OWNER+NAME or NAME. If a clone lacks the commit, its newest
    commit is used.
    """
    owner, _, name = script.repository.partition("/")
    wanted = script.commit
    if wanted.startswith("tag of "):
        try:
            wanted = "v" + importlib.metadata.version(wanted.removeprefix("tag of ")).partition("+")[0]
        except importlib.metadata.PackageNotFoundError as error:
            raise UnavailableError(f"{error} is not installed") from None
    found = [given / x for x in (f"{owner}+{name}", name) if (given / x).is_dir()] if given else []
    repository = _git_folder(found[0]) if found else _download(script.repository, wanted, work)
    if not _has(repository, wanted):
        wanted = "HEAD"  # of a clone that lacks it
    commit = _run("git", "--git-dir", repository, "rev-parse", f"{wanted}^{{commit}}").decode().strip()
    out = work / "run/checkouts" / f"{owner}+{name}" / commit
    done = out / ".done" / script.folders[0].replace("/", "+")
    if not done.exists():
        _export(repository, commit, script.folders, out)
        done.parent.mkdir(exist_ok=True)
        done.touch()
    return out, commit


def _run(*command: str | Path, limit: float = 60) -> bytes:
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=limit)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{error}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise UnavailableError(said[-1] if said else f"git ended with {done.returncode}")
    return done.stdout


def _git_folder(path: Path) -> Path:
    """The git directory of a clone: itself, or one in or below it."""
    for place in (path / ".git", path, *sorted(p for p in path.iterdir() if p.is_dir())):
        if (place / "HEAD").is_file() and (place / "objects").is_dir():
            return place
    raise UnavailableError(f"{path} is not a git repository")


def _has(repository: Path, commit: str) -> bool:
    try:
        _run("git", "--git-dir", repository, "cat-file", "-e", f"{commit}^{{commit}}")
    except UnavailableError:
        return False
    return True


def _download(name: str, wanted: str, work: Path) -> Path:
    """A repository with only this commit. Its files are downloaded when they are needed."""
    repository = work / "run/repositories" / name.replace("/", "+")
    if repository.exists() and _has(repository, wanted):
        return repository
    git = ("git", "--git-dir", repository)
    what = f"refs/tags/{wanted}:refs/tags/{wanted}" if wanted.startswith("v") else wanted
    if not repository.exists():
        repository.mkdir(parents=True)
        _run("git", "init", "--quiet", "--bare", repository)
        _run(*git, "remote", "add", "origin", f"{_HOST}{name}")
        _run(*git, "config", "remote.origin.promisor", "true")
        _run(*git, "config", "remote.origin.partialclonefilter", "blob:none")
    try:
        _run(*git, "fetch", "--quiet", "--depth", "1", "--filter=blob:none", "origin", what, limit=_LIMIT)
    except UnavailableError as error:
        why = f"{name} cannot be had: {error}; --checkouts names a folder of clones"
        raise UnavailableError(why) from None
    return repository


def _export(repository: Path, commit: str, folders: tuple[str, ...], out: Path) -> None:
    """Write the folders of a commit, with any links in them."""
    archive = _run("git", "--git-dir", repository, "archive", commit, "--", *folders, limit=_LIMIT)
    out.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(out, filter="data")
