"""One group reads one view through two proxies, each of which dies and restarts. Run by tests/long/run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.long.views import READ_S, RECORDS, SESSIONS, SETTINGS, SLOTS
from tests.support.brokers import NEW, OLD, Running
from tests.support.raw import Raw
from tests.support.view_group import Group, Member, produce

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

CASES = [
    (OLD, "confluent-classic", "cooperative-sticky"),
    (OLD, "kafka-python", ""),
    (NEW, "confluent-consumer", ""),
    (NEW, "aiokafka", "sticky"),
]
Fresh = Callable[[str], str]


@pytest.fixture(scope="module", params=[OLD, NEW])
def kafka(request: pytest.FixtureRequest, running: Running) -> Cluster:
    return running.cluster(request.param, properties=SESSIONS)


@pytest.fixture(scope="module")
def fronts(running: Running, kafka: Cluster) -> tuple[Front, Front]:
    return running.front(kafka.bootstrap, SETTINGS), running.front(kafka.bootstrap, SETTINGS)


@pytest.mark.parametrize(("release", "client", "assignor"), CASES, ids=lambda value: value or "default")
def test_either_proxy_dies_and_nothing_is_lost(
    kafka: Cluster, fronts: tuple[Front, Front], fresh: Fresh, release: str, client: str, assignor: str
) -> None:
    """Two members at each: those of the other continue meanwhile, and all four share the slots when it is back."""
    if release != kafka.release:
        pytest.skip("the other release")
    with Raw(kafka.bootstrap) as broker:
        topic = broker.create_topic(fresh("base"))
        group, view = fresh("group"), f"__view.r{SLOTS}.{topic.name}"
        values = produce(broker, topic, 0, RECORDS // 10)
        with closing(Group(client, fronts[0].bootstrap, group, view, assignor)) as members:
            members.members += [Member(client, front.bootstrap, group, view, assignor) for front in fronts * 2]
            members.wait_assigned(SLOTS, READ_S)
            there = broker.topic(view)
            assert there is not None
            for dies in fronts:
                values += produce(broker, topic, len(values), len(values) + RECORDS // 20)
                dies.kill()
                values += produce(broker, topic, len(values), len(values) + RECORDS // 20)
                members.wait_read(values, READ_S)
                dies.start()
                members.wait_assigned(SLOTS, READ_S)
                values += produce(broker, topic, len(values), len(values) + RECORDS // 20)
                members.wait_read(values, READ_S)
            members.check(SLOTS)
        assert broker.topic(view) == there
