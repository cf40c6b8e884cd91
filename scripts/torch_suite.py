#!/usr/bin/env python3
"""Run torch's own tests of its DataLoader against stoker.torch.DataLoader.

    .venv/bin/python scripts/torch_suite.py PATH_OF_A_PYTORCH_CHECKOUT [--torch] [--only TEXT] [--report FILE]

PATH is a checkout of PyTorch at about the version that is installed, or any folder with ``test/test_dataloader.py``
in it. Nothing of it is changed or copied: torch.utils.data.DataLoader is replaced before the tests import it. A test
that also fails with torch's own class here, say for want of a library or because the tests are of another version,
says nothing and is counted apart.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import importlib.util
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

LIMIT = 240  # seconds for a process
GROUP = 12  # tests that share one
# Known differences, and their reasons. Every other failure is a fault.
REASONS: dict[str, str] = {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--only", default="", help="tests whose name has this text")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--report", type=Path, help="write the result as a table in Markdown")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--torch", action="store_true", help="torch's own class, to see what fails with it here")
    parser.add_argument("--list", action="store_true", help="print the tests' names")
    args = parser.parse_args()
    file = args.path / "test" / "test_dataloader.py"
    if not file.is_file():
        sys.exit(f"torch_suite: there is no {file}; give the path of a PyTorch checkout")
    if args.one or args.list:
        here(file, args)
        return
    command = [sys.executable, __file__, str(args.path), "--list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    names = [name for name in listed.stdout.split() if args.only in name]
    if not names:
        sys.exit(f"torch_suite: no tests were found\n{listed.stderr[-2000:]}")
    ours = judge(args, names, torch=args.torch)
    failed = [name for name in names if ours[name][0] == "failed"]
    report(args, ours, {} if args.torch else judge(args, failed, torch=True))


def judge(args: argparse.Namespace, names: list[str], torch: bool) -> dict[str, tuple[str, str]]:
    """Run tests, some in one process; what fails or hangs there gets a process of its own."""
    found: dict[str, tuple[str, str]] = {}
    groups = [names[i : i + GROUP] for i in range(0, len(names), GROUP)]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for group, results in zip(groups, pool.map(lambda g: run(args, g, torch), groups), strict=True):
            found |= {name: results.get(name, ("failed", f"not done within {LIMIT} s")) for name in group}
            print(f"{len(found)} of {len(names)}", file=sys.stderr, flush=True)
        alone = [name for name in names if found[name][0] == "failed" and len(names) > 1]
        for name, results in zip(alone, pool.map(lambda n: run(args, [n], torch), alone), strict=True):
            found[name] = results.get(name, ("failed", f"not done within {LIMIT} s"))
    return found


def here(file: Path, args: argparse.Namespace) -> None:
    """Run one test, or list them, in this process."""
    os.environ.setdefault("PYTORCH_TEST_WITH_SLOW", "0")
    import torch.utils.data

    if not args.torch:
        import stoker.torch

        torch.utils.data.DataLoader = stoker.torch.DataLoader
        torch.utils.data.dataloader.DataLoader = stoker.torch.DataLoader
    # In sys.modules before it runs, for what is pickled.
    sys.path.insert(0, str(file.parent))
    sys.argv = [str(file)]
    spec = importlib.util.spec_from_file_location("test_dataloader", file)
    if spec is None or spec.loader is None:
        sys.exit(f"torch_suite: {file} cannot be imported")
    module = sys.modules["test_dataloader"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    loader = unittest.defaultTestLoader
    if args.list:
        for name in vars(module):
            case = getattr(module, name)
            if isinstance(case, type) and issubclass(case, unittest.TestCase):
                print(*(f"{name}.{test}" for test in loader.getTestCaseNames(case)), sep="\n")
        return
    for name in args.one.split(","):
        result = unittest.TestResult()
        loader.loadTestsFromName(name, module).run(result)
        kind, said = "passed", ""
        if not result.wasSuccessful():
            kind, said = "failed", "\n".join(text for _, text in result.failures + result.errors)
        elif result.skipped:
            kind, said = "skipped", result.skipped[0][1]
        print("RESULT", json.dumps([name, kind, said]), flush=True)


def run(args: argparse.Namespace, names: list[str], torch: bool) -> dict[str, tuple[str, str]]:
    """Run tests in one process and return their results."""
    command = [sys.executable, __file__, str(args.path), "--one", ",".join(names), *(["--torch"] if torch else [])]
    try:
        out = subprocess.run(command, capture_output=True, timeout=LIMIT, check=False).stdout
    except subprocess.TimeoutExpired as error:
        out = error.stdout or b""
    lines = [line.partition("RESULT ")[2] for line in out.decode(errors="replace").splitlines() if "RESULT " in line]
    return {name: (kind, said) for name, kind, said in map(json.loads, lines)}


def report(args: argparse.Namespace, ours: dict[str, tuple[str, str]], theirs: dict[str, tuple[str, str]]) -> None:
    """Print counts, and each failure."""
    count = collections.Counter(kind for kind, _ in ours.values())
    both = [name for name, (kind, _) in theirs.items() if kind == "failed"]
    only = [name for name in theirs if name not in both]
    judged = count["passed"] + len(only)
    for name, (kind, said) in ours.items():
        if kind == "failed":
            print(f"--- {name}{' (with torch too)' if name in both else ''}\n{said}\n")
    skipped = collections.Counter(said for kind, said in ours.values() if kind == "skipped")
    for why, n in skipped.most_common():
        print(f"skipped {n}: {why}")
    share = 100 * count["passed"] / max(1, judged)
    line = (
        f"{count['passed']} of {judged} pass ({share:.1f}%); {len(both)} fail with torch's own class too, "
        f"{count['skipped']} are skipped"
    )
    print(line)
    if args.report:
        rows = [f"| `{name}` | {REASONS.get(name, last_line(ours[name][1]))} |" for name in only]
        rows += [f"| `{name}` | fails with torch's own class too: {last_line(theirs[name][1])} |" for name in both]
        args.report.write_text("\n".join([line, "", "| test | why it fails |", "|---|---|", *rows, ""]))


def last_line(said: str) -> str:
    """Return the line with the error."""
    lines = [line for line in said.splitlines() if "Error" in line or "within" in line]
    return (lines or [""])[-1][:160].replace("|", "\\|")


if __name__ == "__main__":
    main()
