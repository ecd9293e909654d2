"""The byte-level removal equals that of the codec; the codec handles unclear bytes."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from kafka_share_proxy.forwarding.apis import k03_metadata
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.rewriting.address_rewriting import sized
from kafka_share_proxy.forwarding.rewriting.hidden_topics import Unclear, is_hidden, without_hidden
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry

RESPONSE = registry.message("MetadataResponse")
VERSIONS = range(registry.versions(3)[0], registry.versions(3)[1] + 1)
NAMES = (
    "orders", "__view.r2.orders", "__proxy_share_state", "__individual_commit_offsets", "__individual_commit_offsets_2",
    "x.__view.r2.orders", "yy__proxy_a", "__view." + "l" * 130, "__view." + "m" * 120, "__view.r2.__proxy_x.__view.y",
    "abc." + "n" * 110 + "__view.", "_view.", "__consumer_offsets",
)  # fmt: skip


def response(draw: random.Random, names: list[str], version: int) -> bytes:
    """A response about these topics, without its size."""

    def ids(most: int) -> list[int]:
        return [draw.randrange(9) for _ in range(draw.randrange(most))]

    def partition(index: int) -> Any:
        return RESPONSE.MetadataResponsePartition(
            partition_index=index, leader_id=1, replica_nodes=ids(5), isr_nodes=ids(4), offline_replicas=ids(3)
        )

    topics = [
        RESPONSE.MetadataResponseTopic(
            error_code=draw.choice((0, 0, 0, 3, 5)), name=name, topic_id=draw.randbytes(16),
            partitions=[partition(index) for index in range(draw.choice((0, 1, 3, 140)))],
        )
        for name in names
    ]  # fmt: skip
    brokers = [
        RESPONSE.MetadataResponseBroker(node_id=1, host="__view.b", port=9092, rack=draw.choice((None, "__proxy_r")))
    ]
    whole = RESPONSE(brokers=brokers, cluster_id=draw.choice((None, "__view.c")), controller_id=1, topics=topics)
    return frames.response(3, version, 7, whole)[4:]


def decoded_without(frame: bytes, version: int) -> Any:
    _, whole = frames.decode_response(3, version, frame)
    whole.topics = [topic for topic in whole.topics if not is_hidden(topic.name)]
    return whole


@pytest.mark.parametrize("version", VERSIONS)
def test_the_cut_response_is_what_the_codec_would_make(version: int) -> None:
    draw = random.Random(version)
    for _ in range(40):
        names = draw.choices(NAMES, k=draw.choice((0, 1, 5, 20, 130)))
        frame = response(draw, names, version)
        pieces = without_hidden(frame, version)
        left = frame if pieces is None else sized(*pieces)[4:]
        assert (pieces is None) == (not any(map(is_hidden, names)))
        assert frames.decode_response(3, version, left)[1] == decoded_without(frame, version)


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("name", [letter + "__view.q" + "q" * more for letter in "0_z" for more in (0, 40, 100, 150)])
def test_a_name_that_holds_a_hidden_one_stays(version: int, name: str) -> None:
    """Even if its letters could be read as a length: then the codec decides."""
    frame = response(random.Random(1), [name, "orders"], version)
    with suppress(Unclear):
        assert without_hidden(frame, version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unusual_error_code_is_no_way_to_be_shown(version: int) -> None:
    topics = [RESPONSE.MetadataResponseTopic(error_code=29, name="__view." + "q" * more) for more in range(150)]
    for topic in topics:
        frame = frames.response(3, version, 7, RESPONSE(brokers=[], topics=[topic]))[4:]
        try:
            pieces = without_hidden(frame, version)
        except Unclear:
            continue
        assert pieces is not None
        assert not frames.decode_response(3, version, sized(*pieces)[4:])[1].topics


@pytest.mark.parametrize("version", VERSIONS)
def test_arbitrary_bytes_are_unclear_or_cut(version: int) -> None:
    """Nothing but Unclear is raised, wherever the response ends or is damaged."""
    draw = random.Random(version)
    whole = bytearray(response(draw, ["__view.a", "orders", "__proxy_b"], version))
    for _ in range(300):
        frame = bytearray(whole[: draw.randrange(5, len(whole))])
        frame[draw.randrange(len(frame))] = draw.randrange(256)
        with suppress(Unclear):
            without_hidden(bytes(frame), version)


def test_a_large_response_never_goes_through_the_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 partitions decoded and encoded are a second and a half for everybody."""
    monkeypatch.setattr(k03_metadata, "repaired", None)
    book = AddressBook(20_000, "proxy.example.com", lambda _node_id, _upstream: True)
    frame = response(random.Random(1), ["orders", "__proxy_share_state", "__view.r2.orders"], 12)
    rewritten = k03_metadata.all_topics_rewriter(12, book)(memoryview(frame), None)  # type: ignore[arg-type]  # no context is used
    assert rewritten is not None
    _, shown = frames.decode_response(3, 12, rewritten[4:])
    assert [topic.name for topic in shown.topics] == ["orders"]
    assert shown.brokers[0].host == "proxy.example.com"


def test_what_is_unclear_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclear(*_: object) -> None:
        raise Unclear

    monkeypatch.setattr(k03_metadata, "without_hidden", unclear)
    book = AddressBook(20_000, "proxy.example.com", lambda _node_id, _upstream: True)
    frame = response(random.Random(1), ["orders", "__view.r2.orders"], 12)
    rewritten = k03_metadata.all_topics_rewriter(12, book)(memoryview(frame), None)  # type: ignore[arg-type]  # no context is used
    assert rewritten is not None
    assert [topic.name for topic in frames.decode_response(3, 12, rewritten[4:])[1].topics] == ["orders"]
