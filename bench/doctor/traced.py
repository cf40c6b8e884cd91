"""Runs a script of jobs/ with TraceML in it: its step is wrapped as TraceML's quick start has it.

    traceml run bench/doctor/traced.py -- SCRIPT [OPTIONS]

The scripts know nothing of it: the function that is their step gets a decorator when it is read.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

try:
    import traceml_ai as traceml
except ImportError:
    import traceml


def stepped(function):
    import torch

    model = torch.nn.Identity()

    def step(*args, **kwargs):
        with traceml.trace_step(model):
            return function(*args, **kwargs)

    return step


def main() -> None:
    script = Path(sys.argv[1]).resolve()
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(script.parent))
    source, wrapped = re.subn(r"(?m)^def (train_step|optimise)\(", r"@__stepped__\n\g<0>", script.read_text())
    if not wrapped:
        sys.exit("the script has no function that is its step")
    traceml.init(mode="auto")
    import job

    job.leave = sys.exit  # so that TraceML's exit handlers run
    names = {"__name__": "__main__", "__file__": str(script), "__stepped__": stepped}
    exec(compile(source, str(script), "exec"), names)


if __name__ == "__main__":
    main()
