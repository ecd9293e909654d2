"""Views read by stock clients: no record lost, every key in order, while members join and leave; short version.

The long forms are `tests/long/run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from kafka_share_proxy.localkafka.front import Front

from tests.support.raw import Raw
from tests.support.view_group import Group, produce

pytestmark = [pytest.mark.broker, pytest.mark.timeout(480)]

SLOTS, RECORDS = 4, 5000
Fresh = Callable[[str], str]


@pytest.fixture(params=["3.9.1", "4.3.0"])
def front(request: pytest.FixtureRequest) -> Front:
    front: Front = request.getfixturevalue({"3.9.1": "views_39", "4.3.0": "views_43"}[request.param])
    return front


@pytest.fixture
def raw(front: Front) -> Iterator[Raw]:
    with Raw(front.bootstrap) as opened:
        yield opened


CLIENTS = {
    "3.9.1": (("confluent-classic", "cooperative-sticky"), ("kafka-python", "")),
    "4.3.0": (("confluent-consumer", ""), ("aiokafka", "sticky")),
}
"""Two on each release, at the same time."""


def test_a004_20_23_and_24_four_members_share_one_partition_and_nothing_is_lost(
    front: Front, raw: Raw, fresh: Fresh, request: pytest.FixtureRequest
) -> None:
    """T1: the first member creates the view; one member is killed, one is added, records keep arriving.

    T6: then the base grows from 1 to 3 partitions; the old slots keep their meaning, and the new ones are assigned
    automatically.
    """
    topic = raw.create_topic(fresh("base"))
    view = f"__view.r{SLOTS}.{topic.name}"
    values = produce(raw, topic, 0, RECORDS * 3 // 5)
    release = request.node.callspec.params["front"]
    with ExitStack() as stack:
        groups = {}
        for client, assignor in CLIENTS[release]:
            group = Group(client, front.bootstrap, fresh(client), view, assignor)
            groups[client] = stack.enter_context(closing(group))
            group.join(4)
        for group in groups.values():
            group.wait_assigned(SLOTS)
        values += produce(raw, topic, len(values), RECORDS * 4 // 5)
        for client, group in groups.items():
            group.leave() if client == "confluent-consumer" else group.kill()  # else 45 s until it is missed
            group.join()
        values += produce(raw, topic, len(values), RECORDS)
        for group in groups.values():
            group.wait_read(values)
            group.wait_assigned(SLOTS)
        grown = raw.add_partitions(topic, 3)
        for group in groups.values():
            group.wait_assigned(3 * SLOTS)
        values += produce(raw, grown, RECORDS, RECORDS + 600)
        for group in groups.values():
            group.wait_read(values)
            group.check(SLOTS)
