"""Run loaders in hostile places and under faults, and write docs/internals/faults.md.

    python -m bench.hostile [--short] [--only places,kills,...] [--places shm,tasks] [--docs DIR]

The long form takes about half an hour. Exits with 1 if Stoker fails anywhere.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from .. import stored
from . import containers, faults, ground, kills, places, slope

ROOT = ground.ROOT
RESULTS = stored.FOLDER / "hostile.json"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def bad(text: str) -> bool:
    """Report whether a result of Stoker is a failure."""
    return not text.startswith(("passes", "one clear error", "not run", "continues", "names"))


def run_places(long: bool, only: str) -> list[dict[str, object]]:
    with ground.data() as data:
        out = []
        for r in places.results(places.World(data, long), only):
            say(f"hostile: {r.place}: Stoker: {r.stoker}" + (f"; PyTorch: {r.torch}" if r.torch else ""))
            out.append(vars(r))
        return out


def run_containers(long: bool, _: str) -> list[dict[str, object]]:
    out: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="stoker-hostile-") as folder:
        try:
            for cell in containers.matrix(Path(folder), long):
                result = cell.trouble or "passes"
                say(
                    f"hostile: container of {cell.limit} MiB, {cell.cores} cores, {cell.data}, memory={cell.memory}: "
                    f"{result}, engine {cell.engine} MiB, peak {cell.peak} MiB"
                )
                out.append(vars(cell) | {"trouble": cell.trouble})
        except ground.UnavailableError as err:
            say(f"hostile: containers are not measured: {err}")
    return out


def run_limits(long: bool, _: str) -> list[dict[str, object]]:
    out = []
    with tempfile.TemporaryDirectory(prefix="stoker-hostile-") as folder:
        for check in containers.checks(Path(folder), long):
            say(f"hostile: {check.name}: {check.text}")
            out.append(vars(check))
    return out


def run_kills(long: bool, _: str) -> list[dict[str, object]]:
    out = []
    with ground.data() as data:
        for kill in (kills.kill_engines, kills.kill_trainers):
            result = kill(data / "pack", 100 if long else 5, random.Random(1))
            say(f"hostile: kill -9, {result.what}: {result.text()}")
            out.append({"what": result.what, "text": result.text()})
    return out


def run_memory(long: bool, _: str) -> list[dict[str, object]]:
    with ground.data() as data:
        found = slope.measure(data / "pack", 600 if long else 20, 180 if long else 10)
        say(f"hostile: memory: {found.text()}")
        return [vars(found) | {"text": found.text() if long else "passes: " + found.text().partition(": ")[2]}]


def run_faults(long: bool, _: str) -> list[dict[str, object]]:
    out = []
    with ground.data() as data:
        for row in faults.results(data):
            say(f"hostile: {row['fault']}: " + ", ".join(f"{k}: {v}" for k, v in row.items() if k != "fault"))
            out.append(row)
    return out


PARTS: dict[str, Callable[[bool, str], list[dict[str, object]]]] = {
    "places": run_places,
    "faults": run_faults,
    "kills": run_kills,
    "limits": run_limits,
    "containers": run_containers,
    "memory": run_memory,
}


def cell(text: object) -> str:
    """Return a text for a cell of a table, not too long."""
    line = str(text).replace("|", "/").replace("\n", " ").replace("<", "&lt;")
    return line if len(line) <= 160 else line[:157] + "..."


def table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
        *(f"| {' | '.join(map(cell, row))} |" for row in rows),
        "",
    ]


def page(results: dict[str, list[dict[str, object]]]) -> str:
    """Return docs/internals/faults.md."""
    lines = [
        "# Hostile places and faults", "",
        "<!-- Written by `make test-hostile`; edit bench/hostile instead. -->", "",
        "`make test-hostile` runs one training loop with Stoker and with other loaders in places that break programs.",
        "**passes** means that all batches have the checksums of the same run elsewhere. Other texts are the loader's own.",
        "The places need root, for namespaces, mounts and control groups. One that cannot be made is not run, with the reason.", "",
        f"Machine: {platform.system()} {platform.release().partition('-')[0]}, Python {platform.python_version()}.", "",
    ]  # fmt: skip
    if found := results.get("places"):
        rows = [(r["place"] + (f" ({r['note']})" if r["note"] else ""), r["stoker"], r["torch"] or "-") for r in found]  # type: ignore[operator]
        lines += ["## Places", "", *table(("place", "Stoker", "PyTorch DataLoader"), rows)]
    if found := results.get("faults"):
        names = [k for k in found[0] if k != "fault"]
        lines += [
            "## Faults", "",
            "A dash means that the loader does not have the feature, or is not installed (`bench/setup.sh`).", "",
            *table(("fault", *names), [(r["fault"], *(r[n] for n in names)) for r in found]),
        ]  # fmt: skip
    if found := results.get("kills"):
        lines += ["## kill -9", "", *table(("killed", "result"), [(r["what"], r["text"]) for r in found])]
    if found := results.get("limits"):
        lines += ["## Cores and page cache", "", *table(("limit", "Stoker"), [(r["name"], r["text"]) for r in found])]
    if found := results.get("containers"):
        passed = sum(not c["trouble"] for c in found)
        lines += [
            "## Containers", "",
            f"{passed} of {len(found)} settings pass: both epochs are whole, the kernel kills no process, the group stays below its limit,",
            "the engine stays below `memory` and the 64 MiB that come on top, and there are as many decoding threads as cores.",
            "The peak of the group includes the trainer and the page cache, which the kernel takes back.", "",
            *table(
                ("limit", "cores", "data", "`memory`", "budget", "engine", "peak of the group", "result"),
                [(f"{c['limit']} MiB", c["cores"], c["data"], c["memory"], f"{c['budget']} MiB", f"{c['engine']} MiB",
                  f"{c['peak']} MiB", c["trouble"] or "passes") for c in found],
            ),
        ]  # fmt: skip
    if found := results.get("memory"):
        text = str(found[0]["text"]).partition(": ")[2]
        lines += ["## Memory over many batches", "", text[:1].upper() + text[1:] + " (target: below 1).", ""]
    lines += [
        "## Random faults", "",
        "`make soak` injects random faults into three jobs for 20 minutes, and compares each batch with the run without faults.",
        "`MINUTES=60` makes it longer, and `SEED=7` repeats the choice and the times of the faults.",
    ]  # fmt: skip
    if found := results.get("soak"):
        lines += ["", str(found[0]["text"])]
    return "\n".join(lines) + "\n"


def save(part: str, found: list[dict[str, object]], docs: Path = ROOT / "docs/internals", keep: bool = False) -> None:
    """Save the results of a part, and write the page. ``keep`` keeps results of other places."""
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    again = {r.get("place") for r in found}
    kept = [r for r in before.get(part, []) if keep and r["place"] not in again]
    # Leave the folders of this run out of the results.
    text = re.sub(r"/[^ '\"]*/stoker-hostile-\w+/", "", json.dumps(found))
    before[part] = kept + json.loads(text)
    stored.save(RESULTS, {k: before[k] for k in (*PARTS, "soak") if k in before})
    (docs / "faults.md").write_text(page(before))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--short", action="store_true", help="the forms of a few seconds; the page is not written")
    parser.add_argument("--only", default=",".join(PARTS), help="parts: " + ", ".join(PARTS))
    parser.add_argument("--places", default="", help="places: " + ", ".join(places.PLACES))
    parser.add_argument("--docs", type=Path, default=ROOT / "docs/internals", help="where the page is written")
    a = parser.parse_args()
    found = {}
    for name in a.only.split(","):
        if name not in PARTS:
            parser.error(f"there is no part {name}: {', '.join(PARTS)}")
        found[name] = PARTS[name](not a.short, a.places)
        if not a.short:  # each part is saved when it is done
            save(name, found[name], a.docs, keep=bool(a.places))
    failures = [f"{r['place']}: {r['stoker']}" for r in found.get("places", []) if bad(str(r["stoker"]))]
    failures += [f"{r['fault']}: {r['Stoker']}" for r in found.get("faults", []) if bad(str(r["Stoker"]))]
    failures += [f"kill -9 of the {r['what']}: {r['text']}" for r in found.get("kills", []) if bad(str(r["text"]))]
    failures += [f"{r['name']}: {r['text']}" for r in found.get("limits", []) if bad(str(r["text"]))]
    failures += [f"container: {c}" for c in found.get("containers", []) if c["trouble"]]
    failures += [f"memory: {r['text']}" for r in found.get("memory", []) if bad(str(r["text"]))]
    for text in failures:
        print(f"hostile: FAILED: {text}")
    print(f"hostile: {len(failures)} failures in {sum(map(len, found.values()))} results")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
