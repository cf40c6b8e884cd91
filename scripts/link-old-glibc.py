#!/usr/bin/env python3
"""Link a program that also starts on older versions of the GNU C library: go build -ldflags '-extld THIS'.

It takes the arguments of a C compiler and links twice. The first program shows which symbols of the C library are newer
than FLOOR. In the second one a small function stands for each of them and calls the newest version up to FLOOR, which
the C library keeps for older programs. The program needs the libraries that these functions were in before glibc 2.34.

$CC names the compiler (default: gcc).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FLOOR = (2, 28)
# "0000000000000000      DF *UND*  0000000000000000 (GLIBC_2.34) dlopen"
SYMBOL = re.compile(r"\s(?P<section>\S+)\s+[0-9a-f]+\s+\(?GLIBC_(?P<version>[0-9.]+)\)?\s+(?P<name>\S+)$")
BEFORE_2_34 = ("libpthread.so.0", "libdl.so.2")
# Older versions call the functions that the linker lists in the program; newer ones find them on their own, but
# not for a program that gives its own init.
START = """
typedef void call(int, char **, char **);
typedef int start(int (*)(int, char **, char **), int, char **, call *, void (*)(void), void (*)(void), void *);
extern call *__init_array_start[] __attribute__((visibility("hidden")));
extern call *__init_array_end[] __attribute__((visibility("hidden")));
extern void _init(void);
extern start stoker_older___libc_start_main;
start __wrap___libc_start_main;
static void begin(int argc, char **argv, char **env)
{
	_init();
	for (call **f = __init_array_start; f < __init_array_end; f++)
		(*f)(argc, argv, env);
}
int __wrap___libc_start_main(int (*run)(int, char **, char **), int argc, char **argv, call *init, void (*fini)(void),
                             void (*last)(void), void *stack)
{
	return stoker_older___libc_start_main(run, argc, argv, init ? init : begin, fini, last, stack);
}
"""

Version = tuple[int, ...]


def main(arguments: list[str]) -> int:
    """Link, and return the exit code."""
    cc = os.environ.get("CC", "gcc").split()
    with tempfile.TemporaryDirectory() as folder:
        try:
            first = Path(folder, "first")
            link(cc, replaced_output(arguments, str(first)))
            # Go asks its linker for many things; only programs have symbols.
            more = older(cc, first, Path(folder)) if first.is_file() else []
            # Libraries that are loaded must not find the program's libjpeg and others in place of their own.
            link(cc, [*arguments, *more, "-Wl,--exclude-libs,ALL"])
        except subprocess.CalledProcessError as e:
            return int(e.returncode)
        except RuntimeError as e:
            print(f"link-old-glibc: {e}", file=sys.stderr)
            return 1
    return 0


def link(cc: list[str], arguments: list[str]) -> None:
    """Call the compiler. Its messages go to the user."""
    subprocess.run([*cc, *arguments], check=True)


def replaced_output(arguments: list[str], out: str) -> list[str]:
    """Return the arguments with another output file."""
    return [out if i and arguments[i - 1] == "-o" else a for i, a in enumerate(arguments)]


def older(cc: list[str], program: Path, folder: Path) -> list[str]:
    """Return the arguments that bind symbols of a program that are newer than FLOOR to older versions."""
    dump = tool(cc, "objdump")
    newer = {name for name, version, defined in symbols(dump, program) if not defined and version > FLOOR}
    if not newer:
        return []
    libraries = [p for p in (library(cc, name) for name in needed(dump, program)) if p]
    best: dict[str, Version] = {}
    for path in libraries:
        for name, version, defined in symbols(dump, path):
            if defined and name in newer and best.get(name, ()) < version <= FLOOR:
                best[name] = version
    missing = sorted(newer - best.keys())
    if missing:
        raise RuntimeError(f"glibc {dotted(FLOOR)} does not have {', '.join(missing)}")
    source = folder / "older.c"
    source.write_text(code(cc, best))
    made = folder / "older.o"
    subprocess.run([*cc, "-O2", "-c", "-o", str(made), str(source)], check=True)
    before = [str(p) for p in (library(cc, name) for name in BEFORE_2_34) if p]
    wraps = [f"-Wl,--wrap={name}" for name in sorted(best)]
    return [*wraps, str(made), "-Wl,--push-state,--no-as-needed", *before, "-Wl,--pop-state"]


def code(cc: list[str], best: dict[str, Version]) -> str:
    """Return C code with a function for each symbol that calls its older version."""
    machine = subprocess.run([*cc, "-dumpmachine"], check=True, capture_output=True, text=True).stdout
    jump = "b" if machine.startswith("aarch64") else "jmp"
    parts = []
    for name, version in sorted(best.items()):
        parts.append(f'__asm__(".symver stoker_older_{name}, {name}@GLIBC_{dotted(version)}");')
        if name == "__libc_start_main":
            parts.append(START)
            continue
        lines = [".text", f".globl __wrap_{name}", f".type __wrap_{name}, %function", f"__wrap_{name}:",
                 f"{jump} stoker_older_{name}"]  # fmt: skip
        parts.append('__asm__("' + "\\n".join(lines) + '");')
    return "\n".join(parts) + "\n"


def symbols(dump: str, path: Path) -> list[tuple[str, Version, bool]]:
    """Return the dynamic symbols of the C library in a file: name, version and whether the file defines it."""
    text = subprocess.run([dump, "-T", str(path)], check=True, capture_output=True, text=True).stdout
    found = (SYMBOL.search(line) for line in text.splitlines())
    return [(m["name"], numbers(m["version"]), m["section"] != "*UND*") for m in found if m]


def needed(dump: str, program: Path) -> list[str]:
    """Return the names of the libraries that a program needs."""
    text = subprocess.run([dump, "-p", str(program)], check=True, capture_output=True, text=True).stdout
    return re.findall(r"NEEDED\s+(\S+)", text)


def library(cc: list[str], name: str) -> Path | None:
    """Return the path of a compiler's library."""
    said = subprocess.run([*cc, f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout.strip()
    return Path(said) if said != name else None


def tool(cc: list[str], name: str) -> str:
    """Return a tool of the compiler's."""
    said = subprocess.run([*cc, f"-print-prog-name={name}"], check=True, capture_output=True, text=True)
    return said.stdout.strip()


def numbers(version: str) -> Version:
    """Return a version as numbers, which compare."""
    return tuple(int(n) for n in version.split("."))


def dotted(version: Version) -> str:
    """Return a version as text."""
    return ".".join(map(str, version))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
