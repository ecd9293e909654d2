"""Agreement of clients and proxy about KeyFilter."""

from __future__ import annotations

from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.key_filter import LAYOUT_VERSION, MURMUR2, TAG, NullKeys


def test_defaults_of_the_field_are_the_layout_and_the_hash_that_are_known() -> None:
    key_filter = messages.KeyFilter()
    assert (key_filter.filter_version, key_filter.hash, key_filter.null_keys) == (
        LAYOUT_VERSION,
        MURMUR2,
        NullKeys.DROP,
    )


def test_the_field_crosses_a_fetch_under_its_tag() -> None:
    message = messages.FetchRequest
    partition = message.FetchPartition(unknown_tags=((TAG, b"filter"),))
    codec = registry.codec_of(message, 16)
    requested = codec.decode(codec.encode(message(topics=[message.FetchTopic(partitions=[partition])])))
    assert [(tag, bytes(content)) for tag, content in requested.topics[0].partitions[0].unknown_tags] == [
        (TAG, b"filter")
    ]
