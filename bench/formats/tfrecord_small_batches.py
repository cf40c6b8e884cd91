"""The small Examples again, in batches of 256: the cost per batch is a larger share."""

from __future__ import annotations

from dataclasses import replace

from . import tfrecord_examples

FORMAT = replace(
    tfrecord_examples.FORMAT,
    name="tfrecord examples 256",
    batch=256,
    what=tfrecord_examples.WHAT.format(batch="256"),
)
