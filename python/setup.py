"""Builds the Go engine into the wheel.

The wheel has no compiled Python module, only the engine, as two programs. ``stoker`` loads the libraries of other
packages, such as FFmpeg's, and needs glibc 2.28 or newer. ``stoker-static`` is for all other systems. So
one wheel per platform serves every Python version and every Linux distribution.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
NEEDS = (
    "building it needs Go 1.26 or newer (https://go.dev/doc/install), a C compiler and the static libraries of "
    "libjpeg-turbo (Debian: libjpeg62-turbo-dev, Ubuntu: libjpeg-turbo8-dev), Opus and Vorbis (libopus-dev, "
    "libvorbis-dev)"
)
# The systems on which the program that loads libraries starts, and on which the other one does.
LOADS = ("manylinux_2_28",)
STATIC = ("manylinux2014", "manylinux_2_17", "musllinux_1_1")


def fail(what: str) -> None:
    """End the build with one line instead of a traceback."""
    sys.exit(f"stoker: {what}\nhint: {NEEDS}; or install a wheel, which needs none of them")


class BuildWithEngine(build_py):
    """Adds the engine's binary to the package."""

    def run(self) -> None:
        """Build the package, then the engine into it."""
        if not self.editable_mode:
            # What an earlier build left here would go into the wheel as well.
            shutil.rmtree(Path(self.build_lib) / "stoker", ignore_errors=True)
        super().run()
        if not self.editable_mode:  # an editable install uses bin/stoker of the checkout
            self.build_engine(Path(self.build_lib).resolve() / "stoker" / "bin" / "stoker")

    def build_engine(self, out: Path) -> None:
        """Build both programs, or copy the one that STOKER_WHEEL_BINARY names."""
        out.parent.mkdir(parents=True, exist_ok=True)
        ready = os.environ.get("STOKER_WHEEL_BINARY")
        if ready:
            shutil.copy2(ready, out)
            self.distribution.engine_runs_on = ()  # how it was linked is not known
            return
        if not (ROOT / "cmd" / "stoker" / "main.go").is_file():
            fail(f"the engine's source is not at {ROOT}; build in a checkout of the repository")
        go = shutil.which("go")
        if go is None:
            fail("the engine cannot be built: Go is missing (no `go` on the PATH)")
        failed = {
            LOADS: self.go_build(go, out, "-extld scripts/link-old-glibc.py"),
            STATIC: self.go_build(go, out.with_name("stoker-static"), "-extldflags -static"),
        }
        if all(failed.values()):
            fail(f"the engine cannot be built; `go build` says:\n{failed[LOADS]}")
        for platforms, why in failed.items():
            if why:  # not every distribution has the C library for static linking
                print(f"stoker: the wheel is not for {', '.join(platforms)}; `go build` says:\n{why}", file=sys.stderr)
        self.distribution.engine_runs_on = STATIC if not failed[STATIC] else LOADS
        self.write_licences(go, out.with_name("LICENSES.txt"))

    def go_build(self, go: str, out: Path, link: str) -> str:
        """Build a program; return what went wrong."""
        name = "github.com/stokerdata/stoker/internal/cli.release"
        flags = f"-s -w -X {name}={self.distribution.get_version()} -linkmode external {link}"
        command = [
            go, "build", "-trimpath", "-buildvcs=false", "-tags", "netgo,osusergo", "-ldflags", flags,
            "-o", str(out), "./cmd/stoker",
        ]  # fmt: skip
        env = {**os.environ, "CGO_ENABLED": "1"}
        built = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        return (built.stderr or built.stdout or "it failed").strip()[-2000:] if built.returncode else ""

    def write_licences(self, go: str, out: Path) -> None:
        """Put the licences of what the binary contains beside it, as they ask for."""
        form = "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}{{end}}{{end}}"
        command = [go, "list", "-deps", "-f", form, "./cmd/stoker"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        parts = [
            "The stoker binary contains the following software. It is based in part on the work of the Independent "
            "JPEG Group.\n"
        ]
        places = {name: Path(folder) for name, _, folder in (line.partition("\t") for line in listed.splitlines())}
        root = subprocess.run([go, "env", "GOROOT"], capture_output=True, text=True, check=True).stdout.strip()
        places["The Go programming language"] = Path(root)
        texts = [(name, sorted(places[name].glob("LICEN[CS]E*"))) for name in sorted(places)]
        # libjpeg-turbo, Opus, Vorbis, Ogg and the C library, as Debian and Ubuntu describe them.
        documents = Path("/usr/share/doc")
        packages = (
            "libjpeg62-turbo-dev", "libjpeg-turbo8-dev", "libopus-dev", "libvorbis-dev", "libogg-dev", "libc6-dev",
        )  # fmt: skip
        texts += [(package, list(documents.glob(f"{package}/copyright"))) for package in packages]
        for name, files in texts:
            parts += [f"{'=' * 78}\n{name}\n\n{f.read_text(errors='replace')}" for f in files]
        out.write_text("\n".join(parts))


class PlatformWheel(bdist_wheel):
    """A wheel for every Python 3 of one platform."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of the systems on which a program of the wheel starts."""
        # scripts/wheel-arm64.sh builds for another machine than this one.
        machine = os.environ.get("STOKER_WHEEL_MACHINE") or platform.machine()
        if machine not in ("x86_64", "aarch64") or sys.platform != "linux":
            fail(f"{sys.platform} on {machine} is not supported: Stoker runs on Linux, x86_64 and arm64")
        systems = self.distribution.engine_runs_on or ("linux",)
        return "py3", "none", ".".join(f"{system}_{machine}" for system in systems)


class EngineDistribution(Distribution):
    """A distribution that depends on the platform."""

    engine_runs_on = STATIC

    def has_ext_modules(self) -> bool:
        """Say that there is compiled code in it."""
        return True


setup(distclass=EngineDistribution, cmdclass={"build_py": BuildWithEngine, "bdist_wheel": PlatformWheel})
