"""Requests of a state producer, and outcomes that it reports."""

from __future__ import annotations

from typing import NamedTuple

from kafka_share_proxy.wire.errors import ErrorCode


class Identify(NamedTuple):
    """InitProducerId request: (-1, -1) claims the transactional id, other values renew it."""

    producer_id: int
    producer_epoch: int


class Append(NamedTuple):
    """Produce request with acks=all."""

    batch: bytes


class AppendInTransaction(NamedTuple):
    """Transactional Produce request with acks=all."""

    batch: bytes


class Stored(NamedTuple):
    """Outcome: all in-sync replicas have the append."""

    token: object


class Refused(NamedTuple):
    """The append is not stored and never will be."""

    token: object
    code: ErrorCode


class TakenOver(NamedTuple):
    """The takeover record is at this offset."""

    offset: int
    producer_id: int
    producer_epoch: int


class Lost(NamedTuple):
    """Another proxy is the owner. No waiting append was or will be confirmed."""

    code: ErrorCode


class WentBack(NamedTuple):
    """The append got an offset that was already used: the log was replaced, or has lost its end."""

    offset: int


Outcome = Stored | Refused | TakenOver | Lost | WentBack
RequestType = type[Identify] | type[Append] | type[AppendInTransaction]
