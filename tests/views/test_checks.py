"""Report of `check` about views."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.views import checks
from kafka_share_proxy.views.checks import PROBE, ViewCheck, ViewRights
from kafka_share_proxy.views.kernel import slicing
from kafka_share_proxy.views.settings import Views
from kafka_share_proxy.views.state_records import TOPIC
from kafka_share_proxy.wire.acl_operations import NO_BITS, AclOperation

from tests.support.rights_client import ALL, RightsClient

CONFIG = Views()
CLUSTER = ClusterSnapshot(brokers={}, metadata=(), versions={}, silent={})


class Client(RightsClient):
    """Client of a cluster that grants some rights."""

    def __init__(self, topic: int = ALL, views: int = ALL, partitions: int = 1, code: int = 0) -> None:
        super().__init__(partitions, **{TOPIC: topic, PROBE: views})
        self.codes = {TOPIC: code, PROBE: 3}


async def sentences(client: Client, settings: Views = CONFIG) -> list[str]:
    check: Any = ViewCheck(settings)
    return list(check.report(await check.query(client, CLUSTER), CLUSTER).remarks)


async def test_nothing_is_missing() -> None:
    """Also if the topic does not exist yet, and if the broker returns no operation bits."""
    assert await sentences(Client()) == []
    assert await sentences(Client(code=3)) == []
    assert await sentences(Client(topic=NO_BITS, views=NO_BITS)) == []


@pytest.mark.parametrize("operation", ["READ", "WRITE", "DESCRIBE", "CREATE"])
async def test_each_missing_right_on_the_topic_is_named(operation: str) -> None:
    """CREATE only matters until it exists."""
    bits = ALL & ~(1 << AclOperation[operation])
    (text,) = await sentences(Client(topic=bits, code=3))
    assert f"lacks {operation} on topic {TOPIC}" in text
    assert (await sentences(Client(topic=bits)) == []) is (operation == "CREATE")


@pytest.mark.parametrize("operation", ["DESCRIBE", "ALTER", "DELETE", "CREATE"])
async def test_each_missing_right_on_views_is_named(operation: str) -> None:
    """They are what the watch needs."""
    (text,) = await sentences(Client(views=ALL & ~(1 << AclOperation[operation])))
    assert f"lacks {operation} on topics __view.*" in text


async def test_a_topic_that_may_not_be_seen_lacks_everything() -> None:
    """Error 29, whatever the bits are."""
    (text,) = await sentences(Client(code=29))
    assert "lacks READ, WRITE, DESCRIBE, CREATE" in text


async def test_another_number_of_partitions_is_reported() -> None:
    """Nothing is kept there then."""
    (text,) = await sentences(Client(partitions=2))
    assert "2 partitions" in text


async def test_features_that_are_off_lack_nothing() -> None:
    """Views off, or their facts in memory."""
    assert await sentences(Client(topic=0, views=0), Views(serve=False)) == []
    (text,) = await sentences(Client(topic=0, views=0), Views(state="memory"))
    assert "__view.*" in text


def test_without_an_identity_one_sentence_says_what_does_not_work() -> None:
    """For brokers that require authentication."""
    (text,) = checks.judge(CONFIG, None)
    assert "plans are refused" in text
    assert list(checks.judge(CONFIG, ViewRights())) == []


@pytest.mark.parametrize(("kernel", "word"), [("c", "in C."), ("python", "slow")])
def test_one_line_says_how_views_are_served(monkeypatch: pytest.MonkeyPatch, kernel: str, word: str) -> None:
    """Served by the C kernel or by the Python fallback; or not at all."""
    monkeypatch.setattr(slicing, "KERNEL", kernel)
    assert word in checks.line(CONFIG, ViewRights())
    assert "off" in checks.line(Views(serve=False), ViewRights())
    assert "with the limits above" in checks.line(CONFIG, None)


async def test_topic_that_is_not_compacted_is_an_obstacle() -> None:
    """Plans and bases of views would be lost."""
    client = Client()
    client.settings = {"cleanup.policy": "delete"}
    findings = await checks.send_request(client)  # type: ignore[arg-type]
    (text,) = checks.obstacles(CONFIG, findings)
    assert f"--entity-name {TOPIC} --add-config cleanup.policy=compact" in text
    assert list(checks.obstacles(Views(state="memory"), findings)) == []
