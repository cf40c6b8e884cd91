"""The small Examples again, in batches of 256: what a batch costs by itself weighs more."""

from __future__ import annotations

from dataclasses import replace

from . import tfrecord_examples

FORMAT = replace(
    tfrecord_examples.FORMAT,
    name="tfrecord examples 256",
    batch=256,
    what=tfrecord_examples.WHAT.format(batch="256"),
)
