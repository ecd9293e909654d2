"""Texts of finished ranges in the metadata of committed offsets (commits/README.md rules 7, 11, 12 and 19)."""

from __future__ import annotations

from typing import NamedTuple

from kafka_share_proxy.offsets.commit_text import (
    CommitText,
    CommitTextError,
    TooManyRanges,
    commit_text_version,
    parse_commit_text,
    split_commit_text,
)
from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan
from kafka_share_proxy.views.model.names import BadViewName, parse
from kafka_share_proxy.wire.errors import ErrorCode

NUL = "\0"
NO_RANGES = OffsetRanges()
TEXT_BYTES_MAX = 32_766
"""Longest string in Kafka's protocol, less one byte for a NUL."""


class CommittedOffset(NamedTuple):
    """One committed offset, without finished ranges."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    """The client's own metadata."""
    catch_up: tuple[OffsetSpan, ...] = ()
    """Ranges of the token `pr`."""


class RequestedOffset(NamedTuple):
    """One partition of a commit."""

    committed: CommittedOffset
    done: OffsetRanges | None = None
    """Finished ranges, None in a plain commit."""


def requested_offset(offset: int, leader_epoch: int, metadata: str) -> RequestedOffset | ErrorCode:
    """Return what a client commits, or the error of a text that is refused."""
    if commit_text_version(metadata) is None:
        return RequestedOffset(CommittedOffset(offset, leader_epoch, metadata))
    try:
        text = parse_commit_text(metadata)
    except TooManyRanges:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    except CommitTextError:
        return ErrorCode.INVALID_REQUEST
    if offset < 0:
        return ErrorCode.INVALID_REQUEST
    user_metadata = (text.user_text or "") + (NUL if metadata.endswith(NUL) else "")
    return RequestedOffset(CommittedOffset(offset, leader_epoch, user_metadata, text.catch_up), text.ranges)


def with_ranges(committed: CommittedOffset, ranges: OffsetRanges = NO_RANGES) -> CommittedOffset:
    """Return the offset with the canonical text of its ranges, the first ones that fit into a string."""
    if not ranges and not committed.catch_up:
        return committed
    own = committed.metadata.rstrip(NUL)
    nul = NUL if committed.metadata.endswith(NUL) else ""
    text = CommitText(ranges, committed.catch_up, own or None)
    return committed._replace(metadata=split_commit_text(text, TEXT_BYTES_MAX)[0] + nul)


def base_of(topic: str) -> str:
    """Return the base of a view, or the topic itself."""
    try:
        view = parse(topic)
    except BadViewName:
        return topic
    return topic if view is None else view.base
