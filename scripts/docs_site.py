"""Hooks of mkdocs: the navigation, and links to files outside docs/.

Each shelf has an index page with a list of its pages. The order of that list is the order of the navigation, and its
second-level headings are the groups. A page that no index lists fails the strict build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"\]\(([^)\s:#]+)(#[^)\s]*)?\)")
ITEM = re.compile(r"^- \[.*?\]\(([^)\s:#]+\.md)\)")
SHELVES = ("start", "how-to", "reference", "internals")


def listed(docs: Path, index: str) -> list[Any]:
    """Returns the navigation of the pages that an index page lists."""
    items: list[Any] = [index]
    group = items
    for line in (docs / index).read_text().splitlines():
        if line.startswith("## "):
            group = []
            items.append({line[3:].strip(): group})
        elif m := ITEM.match(line):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(index), m[1]))
            if posixpath.basename(target) in ("README.md", "index.md"):
                group.extend(listed(docs, target))
            else:
                group.append(target)
    return [item for item in items if not isinstance(item, dict) or all(item.values())]


def title(docs: Path, page: str) -> str:
    return (docs / page).read_text().splitlines()[0].removeprefix("# ")


def on_config(config: Any) -> Any:
    """Makes the navigation."""
    docs = Path(config.docs_dir)
    pages = [f"{shelf}/index.md" for shelf in SHELVES]
    config.nav = ["index.md", *({title(docs, page): listed(docs, page)} for page in pages)]
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Lets links to files outside docs/ lead to the repository."""
    here = posixpath.dirname("docs/" + page.file.src_uri)

    def outside(m: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, m[1]))
        if target.startswith("docs/"):
            return m[0]
        return f"]({config.repo_url}/blob/main/{target}{m[2] or ''})"

    return LINK.sub(outside, markdown)
