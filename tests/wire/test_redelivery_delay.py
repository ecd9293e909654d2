"""Agreement of clients and proxy about RedeliveryDelay."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.model.queue_settings import LONGEST_DELAY_MS
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.redelivery_delay import APPLIED, DELAY_MS_MAX, TAG, delay_ms_in, is_applied, tags_of

TAGGED = tags_of(1500)


@pytest.mark.parametrize("message", [messages.ShareFetchRequest, messages.ShareAcknowledgeRequest])
@pytest.mark.parametrize("version", [1, 2])
def test_the_field_crosses_a_request_under_its_tag(message, version):
    partition = {messages.ShareFetchRequest: "FetchPartition"}.get(message, "AcknowledgePartition")
    topic = {messages.ShareFetchRequest: "FetchTopic"}.get(message, "AcknowledgeTopic")
    batch = message.AcknowledgementBatch(
        first_offset=1, last_offset=2, acknowledge_types=[2], unknown_tags=tags_of(1500)
    )
    entry = getattr(message, partition)(acknowledgement_batches=[batch])
    codec = registry.codec_of(message, version)
    read = codec.decode(codec.encode(message(topics=[getattr(message, topic)(partitions=[entry])])))
    assert delay_ms_in(read.topics[0].partitions[0].acknowledgement_batches[0].unknown_tags) == 1500


@pytest.mark.parametrize("tags", [(), ((1, b"x"),)])
def test_other_tags_name_no_delay(tags):
    assert delay_ms_in(tags) is None
    assert not is_applied(tags)


@pytest.mark.parametrize("tags", [tags_of(-1), tags_of(DELAY_MS_MAX + 1), ((TAG, b"\0"),), ((TAG, b""),)])
def test_a_delay_out_of_range_or_cut_short_is_invalid(tags):
    assert delay_ms_in(tags) == -1


def test_the_longest_delay_is_that_of_groups():
    assert DELAY_MS_MAX == LONGEST_DELAY_MS
    assert delay_ms_in(tags_of(DELAY_MS_MAX)) == DELAY_MS_MAX
    assert is_applied(APPLIED)
