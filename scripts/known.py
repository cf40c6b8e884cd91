"""Adds the functions of the installed libraries to those that the recogniser knows (stoker/torch/_recognise/_proof.py).

    python scripts/known.py           # add the versions that are installed
    python scripts/known.py --only    # and forget all others

Run the tests of recognised loaders with these versions first: they show whether the engine gives the same results.
"""

import argparse
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python" / "src"))

from stoker.torch._recognise import _known, _plan, _proof

PATH = Path(_known.__file__)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="store_true", help="forget all other versions")
    only = parser.parse_args().only
    names = _plan.everything()
    for name in names:
        parts = name.split(".")
        for n in range(1, len(parts)):
            try:
                importlib.import_module(".".join(parts[:n]))
            except ImportError:
                break
    known = {} if only else {name: list(found) for name, found in _known.KNOWN.items()}
    for name, digests in _proof.digests(names).items():
        found = known.setdefault(name, [])
        found += sorted(digests - set(found))
    lines = "".join(f"{name} {' '.join(found)}\n" for name, found in sorted(known.items()))
    _known.KNOWN.clear()
    _known.KNOWN.update({name: known[name] for name in sorted(known)})
    files = sorted(_proof.files() | (frozenset() if only else _known.FILES))
    rows = [" ".join(files[at : at + 8]) + "\n" for at in range(0, len(files), 8)]
    text = PATH.read_text()
    for name, inside in (("_TABLE", lines), ("_FILES", "".join(rows))):
        begin = text.index(f'{name} = """\n') + len(name) + 7
        text = text[:begin] + inside + text[text.index('"""', begin) :]
    PATH.write_text(text)
    print(f"{len(known):,} functions in {PATH}")


if __name__ == "__main__":
    main()
