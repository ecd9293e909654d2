"""Topics and share groups for demonstrations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_share_proxy.app.commands.demo_topics import SettingUpError, configure_group, create_topic
from kafka_share_proxy.localkafka.front import Front

from tests.support.raw import GROUP_RESOURCE, Raw


@pytest.mark.broker
def test_refusals_are_reported_with_their_reason(proxy_39: Front, fresh: Callable[[str], str]) -> None:
    topic, group = fresh("topic"), fresh("group")
    create_topic(proxy_39.bootstrap, topic, 3)
    with pytest.raises(SettingUpError, match=f"cannot create topic {topic}: .*already exists"):
        create_topic(proxy_39.bootstrap, topic)
    configure_group(proxy_39.bootstrap, group, {"share.auto.offset.reset": "earliest"})
    with Raw(proxy_39.bootstrap) as raw:
        assert len(raw.wait_for_leaders(topic, 3).leaders) == 3
        assert raw.describe(GROUP_RESOURCE, group)["share.auto.offset.reset"] == "earliest"
    with pytest.raises(SettingUpError, match=f"cannot set .* of group {group}"):
        configure_group(proxy_39.bootstrap, group, {"share.auto.offset.reset": "never"})
