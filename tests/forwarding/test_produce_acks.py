"""Where acks stand in a Produce request."""

from __future__ import annotations

import pytest

from proxy.forwarding.produce_acks import HEAD_MAX, AcksLayout, acks_layout, read_acks
from proxy.wire import frames, registry
from proxy.wire.errors import RemoteProtocolError


def frame(version: int, acks: int, client_id: str | None, transactional_id: str | None) -> bytes:
    message = registry.message("ProduceRequest")(acks=acks, timeout_ms=1000, topic_data=[])
    if version >= 3:
        message.transactional_id = transactional_id
    return frames.request(0, version, 77, client_id, message)


def acks_of(layout: AcksLayout, data: bytes) -> int | None:
    """What is found where the frame stands in the middle of a buffer with something else around it."""
    for around in (b"\x00", b"\xff"):
        buffer = memoryview(around * 5 + data + around * 40)
        found = read_acks(layout, buffer, 5, 5 + len(data))
    assert read_acks(layout, memoryview(data), 0, len(data)) == found
    return found


@pytest.mark.parametrize("version", range(registry.versions(0)[0], registry.versions(0)[1] + 1))
@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("client_id", [None, "", "x" * 300])
@pytest.mark.parametrize("transactional_id", [None, "tx" * 100])
def test_acks_are_found_as_the_codec_wrote_them(
    version: int, acks: int, client_id: str | None, transactional_id: str | None
) -> None:
    """In every version, behind any client id and transactional id."""
    data = frame(version, acks, client_id, transactional_id)
    assert acks_of(acks_layout(version), data) == acks


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_too_few_bytes_are_no_answer_yet(version: int) -> None:
    data = frame(version, 1, "client", "transaction")
    found = [acks_of(acks_layout(version), data[:end]) for end in range(12, len(data))]
    first = found.index(1)
    assert found == [None] * first + [1] * (len(found) - first)


def test_a_negative_length_is_the_peers_fault() -> None:
    with pytest.raises(RemoteProtocolError):
        acks_of(AcksLayout(flexible=False, strings=1), bytes(12) + b"\xff\xfe" + bytes(20))


def test_a_varint_without_end_is_the_peers_fault() -> None:
    with pytest.raises(RemoteProtocolError):
        acks_of(AcksLayout(flexible=True, strings=1), bytes(12) + b"\xff\xff" + b"\xff" * 20)


def test_acks_beyond_the_limit_are_the_peers_fault() -> None:
    """A tagged field in the header may be of any length; nobody keeps megabytes to find two bytes."""
    long_tag = b"\x01\x00" + b"\xff\xff\x7f" + bytes(HEAD_MAX)
    with pytest.raises(RemoteProtocolError, match="too far"):
        acks_of(AcksLayout(flexible=True, strings=0), bytes(12) + b"\xff\xff" + long_tag)


def test_a_million_tagged_fields_are_not_counted() -> None:
    with pytest.raises(RemoteProtocolError, match="tagged"):
        acks_of(AcksLayout(flexible=True, strings=0), bytes(12) + b"\xff\xff" + b"\xff\xff\xff\x0f" + bytes(9))
