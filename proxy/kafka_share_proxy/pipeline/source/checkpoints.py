"""Content of Spark's checkpoint of a stream: offsets of planned batches, and which batches are committed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kafka_share_proxy.pipeline.share.share_offsets import decode_share_offset
from kafka_share_proxy.pipeline.source.stream_offsets import BadStreamOffset, decode_offsets
from kafka_share_proxy.pipeline.tables.files import Files
from kafka_share_proxy.wire.values import TopicPartition

ROWS_PER_FILE = 50_000
"""Offsets per file. Reading that many takes a task about 0.1 s."""


def stored_offset(files: Files, checkpoint: str, number: int) -> Mapping[str, Any] | None:
    """Return the stored offset of a batch, or None if the checkpoint does not contain it."""
    path = f"{checkpoint.rstrip('/')}/offsets/{number}"
    if not files.exists(path):
        return None
    try:
        stored = json.loads(files.read(path).splitlines()[-1])  # version, metadata, and one line for each source
    except (ValueError, IndexError):
        return None
    return stored if isinstance(stored, dict) else None


def last_committed(files: Files, checkpoint: str) -> int:
    """Return the number of the last committed batch, -1 without one."""
    names = files.names(f"{checkpoint.rstrip('/')}/commits")
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def files_of_batch(files: Files, checkpoint: str, number: int, start: Mapping[TopicPartition, int]) -> int | None:
    """Return the number of files to write a batch to. None if the checkpoint does not contain the batch.

    `start`: offsets at which the stream started, for its first batch.
    """
    end = stored_offset(files, checkpoint, number)
    if end is None:
        return None
    before = stored_offset(files, checkpoint, number - 1)
    try:
        if "tokens" in end:
            count = sum(span.end - span.start for _, span in decode_share_offset(end).tokens)
        else:
            start_offsets = start if before is None else decode_offsets(before)
            count = sum(
                max(0, offset - start_offsets.get(partition, 0)) for partition, offset in decode_offsets(end).items()
            )
    except BadStreamOffset:
        return None
    return files_for(count)


def files_for(offsets: int) -> int:
    """Return the number of files for that many offsets."""
    return max(1, -(-offsets // ROWS_PER_FILE))
