"""Make a release in dist/: `make release` runs this.

For x86_64 and arm64: a wheel, a tar file with the program, and a Debian package. For all of them: a list of what the
program contains (CycloneDX), release notes, and checksums. The version is that of the Python package.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.contact import OrganizationalEntity
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
HOME = "https://github.com/stokerdata/stoker"
SUMMARY = "data loader for deep learning"
# Names of the architectures: of wheels, and of Debian.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# Libraries of C that are linked into the program, by the Debian packages that they come from.
LINKED = {
    "libjpeg-turbo": ("libjpeg62-turbo-dev", "libjpeg-turbo8-dev"),
    "opus": ("libopus-dev",),
    "vorbis": ("libvorbis-dev",),
    "ogg": ("libogg-dev",),
}


def main() -> None:
    """Make all files."""
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "python/src/stoker/_version.py").read_text(), re.M)
    if version is None:
        sys.exit("release: python/src/stoker/_version.py has no version")
    notes = release_notes(version[1])
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    # The date of the last commit, so that the same commit gives the same files.
    os.environ.setdefault("SOURCE_DATE_EPOCH", git("log", "-1", "--format=%ct") or "0")
    say(f"Stoker {version[1]} in {DIST.name}/")
    for machine in ARCHITECTURES:
        wheel = build_wheel(machine)
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder)
            unpack(wheel, tree, version[1])
            write_tar(tree, DIST / f"stoker-{version[1]}-linux-{machine}.tar.gz", f"stoker-{version[1]}")
            write_deb(tree, version[1], ARCHITECTURES[machine])
            if machine == platform.machine():
                write_sbom(tree / "stoker", version[1])
    (DIST / "RELEASE-NOTES.md").write_text(notes)
    files = sorted(f for f in DIST.iterdir() if f.name != "SHA256SUMS")
    (DIST / "SHA256SUMS").write_text(
        "".join(f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}\n" for f in files)
    )
    for file in files:
        say(f"{file.stat().st_size / 1e6:8.1f} MB  {file.name}")


def say(text: str) -> None:
    print(f"release: {text}", flush=True)


def git(*arguments: str) -> str:
    """Return what git says, "" outside a repository."""
    done = subprocess.run(["git", "-c", "safe.directory=*", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def release_notes(version: str) -> str:
    """Return the section of the changelog about a version, and the changes since it."""
    section = re.search(rf"^## {re.escape(version)}\b.*?(?=^## |\Z)", (ROOT / "CHANGELOG.md").read_text(), re.M | re.S)
    if section is None:
        sys.exit(f"release: CHANGELOG.md has no section {version}")
    files = sorted(f for f in (ROOT / "changes").glob("*.md") if f.name != "README.md")
    changes = [f"- {' '.join(f.read_text().split())}" for f in files]
    return "\n".join([section[0].strip(), *([""] if changes else []), *changes]) + "\n"


def build_wheel(machine: str) -> Path:
    """Build the wheel for an architecture, and return its file."""
    say(f"wheel for {machine}")
    if machine == platform.machine():
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(DIST), "."]
        subprocess.run(command, cwd=ROOT / "python", check=True, stdout=subprocess.DEVNULL)
    elif machine == "aarch64":
        subprocess.run([ROOT / "scripts/wheel-arm64.sh", sys.executable, DIST], check=True)
    else:
        sys.exit(f"release: there is no cross build for {machine} on {platform.machine()}")
    (wheel,) = DIST.glob(f"*_{machine}.whl")
    return wheel


def unpack(wheel: Path, tree: Path, version: str) -> None:
    """Write the programs of a wheel, their licences, manual pages and completion into a folder."""
    with zipfile.ZipFile(wheel) as z:
        for name in ("stoker", "stoker-static", "LICENSES.txt"):
            (tree / name).write_bytes(z.read(f"stoker/bin/{name}"))
    for name in ("stoker", "stoker-static"):
        (tree / name).chmod(0o755)
    for name in ("LICENSE", "NOTICE", "README.md"):
        shutil.copy(ROOT / name, tree)
    release = f"-X github.com/stokerdata/stoker/internal/cli.release={version}"
    subprocess.run(["go", "run", "-ldflags", release, "./scripts/man", tree / "man"], cwd=ROOT, check=True)
    (tree / "completion").mkdir()
    for shell in ("bash", "zsh", "fish"):
        done = subprocess.run([ROOT / "bin/stoker", "completion", shell], check=True, capture_output=True)
        (tree / "completion" / shell).write_bytes(done.stdout)


def add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    """Add a file that is the same whenever it is made."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(data), mode, int(os.environ["SOURCE_DATE_EPOCH"])
    info.uname = info.gname = "root"
    tar.addfile(info, io.BytesIO(data))


def packed(files: Iterable[tuple[str, bytes, int]]) -> bytes:
    """Return a tar.gz file."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as z, tarfile.open(fileobj=z, mode="w") as tar:
        folders: set[str] = set()
        for name, data, mode in files:
            for parent in reversed(Path(name).parents):
                folder = parent.as_posix()
                if folder != "." and folder not in folders:
                    folders.add(folder)
                    info = tarfile.TarInfo(folder + "/")
                    info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o755, int(os.environ["SOURCE_DATE_EPOCH"])
                    info.uname = info.gname = "root"
                    tar.addfile(info)
            add(tar, name, data, mode)
    return out.getvalue()


def write_tar(tree: Path, out: Path, folder: str) -> None:
    """Write the tar file: one folder with everything."""
    files = sorted(f for f in tree.rglob("*") if f.is_file())
    out.write_bytes(
        packed((f"{folder}/{f.relative_to(tree)}", f.read_bytes(), f.stat().st_mode & 0o755) for f in files)
    )


def write_deb(tree: Path, version: str, architecture: str) -> None:
    """Write the Debian package."""
    where = {
        "stoker": "usr/bin/stoker",
        "LICENSES.txt": "usr/share/doc/stoker/copyright",
        "NOTICE": "usr/share/doc/stoker/NOTICE",
        "completion/bash": "usr/share/bash-completion/completions/stoker",
        "completion/zsh": "usr/share/zsh/vendor-completions/_stoker",
        "completion/fish": "usr/share/fish/vendor_completions.d/stoker.fish",
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        for name, to in where.items():
            (root / to).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(tree / name, root / to)
        pages = root / "usr/share/man/man1"
        pages.mkdir(parents=True)
        for page in (tree / "man").iterdir():
            (pages / f"{page.name}.gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
        size = sum(f.stat().st_size for f in root.rglob("*") if f.is_file()) // 1024
        control = root / "DEBIAN/control"
        control.parent.mkdir()
        control.write_text(
            f"Package: stoker\nVersion: {version}\nArchitecture: {architecture}\nSection: science\nPriority: optional\n"
            f"Maintainer: Stoker <{HOME}>\nInstalled-Size: {size}\nDepends: libc6 (>= 2.28)\nHomepage: {HOME}\n"
            f"Description: {SUMMARY}\n The command line: it packs, checks and converts datasets, measures storage and\n"
            " decoding, and runs training scripts. The Python package is on PyPI.\n"
        )
        out = DIST / f"stoker_{version}_{architecture}.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", root, out], check=True, stdout=subprocess.DEVNULL)


def write_sbom(program: Path, version: str) -> None:
    """List what the program and the Python package contain."""
    bom = Bom()
    link = ExternalReference(type=ExternalReferenceType.VCS, url=XsUri(HOME))
    main = Component(
        type=ComponentType.APPLICATION, name="stoker", version=version, bom_ref="stoker", external_references=[link],
        supplier=OrganizationalEntity(name="Stoker", urls=[XsUri(HOME)]),
        purl=PackageURL("pypi", None, "stoker", version),
    )  # fmt: skip
    bom.metadata.component = main
    parts = [*go_modules(program), *linked_libraries(), *python_packages()]
    for part in parts:
        bom.components.add(part)
    bom.register_dependency(main, parts)
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if fault is not None:
        sys.exit(f"release: the list of contents does not match the schema of CycloneDX 1.6: {fault}")
    (DIST / f"stoker-{version}.cdx.json").write_text(text + "\n")
    say(f"{len(parts)} parts in the list of contents")


def go_modules(program: Path) -> list[Component]:
    """Return the Go modules in a program, and the Go version that built it."""
    said = subprocess.run(["go", "version", "-m", program], check=True, capture_output=True, text=True).stdout
    found = [
        Component(type=ComponentType.FRAMEWORK, name="go", version=said.split()[1].removeprefix("go"), bom_ref="go")
    ]
    for name, version, digest in re.findall(r"^\tdep\t(\S+)\t(\S+)(?:\t(\S+))?", said, re.M):
        purl = PackageURL("golang", name.rpartition("/")[0], name.rpartition("/")[2], version)
        # h1: is the base64 SHA-256 of a list of the module's files.
        comment = f"go.sum: {digest}" if digest else None
        link = ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(f"https://{name}"), comment=comment)
        found.append(
            Component(type=ComponentType.LIBRARY, name=name, version=version, purl=purl, bom_ref=purl.to_string(),
                      external_references=[link])
        )  # fmt: skip
    return found


def linked_libraries() -> list[Component]:
    """Return the libraries of C that are linked into the program."""
    found = []
    for name, packages in LINKED.items():
        for package in packages:
            done = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True)
            if done.returncode == 0:
                purl = PackageURL("deb", "debian", package, done.stdout)
                archive = next(Path("/usr/lib").glob(f"*/lib{name.removesuffix('-turbo').removeprefix('lib')}.a"), None)
                digest = hashlib.sha256(archive.read_bytes()).hexdigest() if archive else None
                hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)] if digest else []
                found.append(
                    Component(type=ComponentType.LIBRARY, name=name, version=done.stdout, purl=purl, hashes=hashes,
                              bom_ref=purl.to_string())
                )  # fmt: skip
                break
        else:
            sys.exit(f"release: {name} is linked into the program, and none of {', '.join(packages)} is installed")
    return found


def python_packages() -> list[Component]:
    """Return what the Python package requires."""
    text = (ROOT / "python/pyproject.toml").read_text()
    listed = re.search(r"^dependencies = \[(.*?)\]", text, re.M | re.S)
    found = []
    for name, needs in re.findall(r'"([A-Za-z0-9_.-]+)([^"]*)"', listed[1] if listed else ""):
        purl = PackageURL("pypi", None, name)
        found.append(
            Component(
                type=ComponentType.LIBRARY,
                name=name,
                purl=purl,
                bom_ref=purl.to_string(),
                description=f"required: {name}{needs}",
            )
        )
    return found


if __name__ == "__main__":
    main()
