"""Builds the Go engine into the wheel.

The wheel has no compiled Python module, only the ``stoker`` binary, linked statically: one wheel per platform
serves every Python version and every Linux distribution.
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
    "building it needs Go 1.26 or newer (https://go.dev/doc/install), a C compiler and the static library of "
    "libjpeg-turbo (Debian: libjpeg62-turbo-dev, Ubuntu: libjpeg-turbo8-dev)"
)


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
        """Build the binary, or copy the one that STOKER_WHEEL_BINARY names."""
        out.parent.mkdir(parents=True, exist_ok=True)
        ready = os.environ.get("STOKER_WHEEL_BINARY")
        if ready:
            shutil.copy2(ready, out)
            return
        if not (ROOT / "cmd" / "stoker" / "main.go").is_file():
            fail(f"the engine's source is not at {ROOT}; build in a checkout of the repository")
        go = shutil.which("go")
        if go is None:
            fail("the engine cannot be built: Go is missing (no `go` on the PATH)")
        version = self.distribution.get_version()
        flags = (
            f"-s -w -X github.com/stokerdata/stoker/internal/cli.release={version} "
            "-linkmode external -extldflags -static"
        )
        command = [
            str(go), "build", "-trimpath", "-buildvcs=false", "-tags", "netgo,osusergo",
            "-ldflags", flags, "-o", str(out), "./cmd/stoker",
        ]  # fmt: skip
        env = {**os.environ, "CGO_ENABLED": "1"}
        built = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        if built.returncode:
            fail(f"the engine cannot be built; `go build` says:\n{(built.stderr or built.stdout).strip()[-2000:]}")


class PlatformWheel(bdist_wheel):
    """A wheel for every Python 3 of one platform."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags: a static binary runs on any distribution, whatever its C library."""
        machine = platform.machine()
        if machine not in ("x86_64", "aarch64") or sys.platform != "linux":
            fail(f"{sys.platform} on {machine} is not supported: Stoker runs on Linux, x86_64 and arm64")
        if os.environ.get("STOKER_WHEEL_BINARY"):
            return "py3", "none", f"linux_{machine}"  # who knows how that was linked
        return "py3", "none", f"manylinux2014_{machine}.manylinux_2_17_{machine}.musllinux_1_1_{machine}"


class EngineDistribution(Distribution):
    """A distribution that depends on the platform."""

    def has_ext_modules(self) -> bool:
        """Say that there is compiled code in it."""
        return True


setup(distclass=EngineDistribution, cmdclass={"build_py": BuildWithEngine, "bdist_wheel": PlatformWheel})
