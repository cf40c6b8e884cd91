"""The figures of one result file, and the Markdown that shows figures."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from .suite import Arm, Suite


class Figures:
    """The rounds of each arm, by suite and arm."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.results = results
        self.runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for run in results["runs"]:
            if "error" not in run:
                self.runs.setdefault((run["suite"], run["name"]), []).append(run)

    def values(self, suite: str, arm: str, key: str) -> list[float]:
        return [run[key] for run in self.runs.get((suite, arm), []) if run.get(key) is not None]

    def median(self, suite: str, arm: str, key: str = "examples_s") -> float | None:
        values = self.values(suite, arm, key)
        return statistics.median(values) if values else None

    def memory(self, suite: str, arm: str, key: str) -> float:
        values = [run["memory_mib"][key] for run in self.runs.get((suite, arm), []) if run.get("memory_mib")]
        return statistics.median(values) if values else 0.0

    def measured(self, suite: Suite, kind: str) -> list[Arm]:
        """The arms of a class that have a figure, fastest first."""
        arms = [a for a in suite.arms if kind in a.classes and (suite.name, a.name) in self.runs]
        return sorted(arms, key=lambda a: -(self.median(suite.name, a.name) or 0))


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    middle = format(statistics.median(values), form)
    return middle if len(values) < 2 else f"{middle} ({format(min(values), form)}-{format(max(values), form)})"


def elsewhere(docs: Path, name: str) -> str:
    """Lists the pages of other machines, which are in folders next to this one."""
    links = [f"[{f.parent.name}]({f.parent.name}/{name})" for f in sorted(docs.glob(f"*/{name}"))]
    return f"The same on another machine: {', '.join(links)}.\n\n" if links else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: int | Collection[int] = 1) -> str:
    """A Markdown table; columns from `right` on, or those that it names, are aligned to the right."""
    aligned = range(right, len(head)) if isinstance(right, int) else right
    lines = [
        "| " + " | ".join(head) + " |",
        "|" + "|".join("---:" if i in aligned else "---" for i in range(len(head))) + "|",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)
