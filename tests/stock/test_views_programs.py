"""Views read by stock clients that are not Python's; in short. The long forms are `tests/long/run`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from kafka_share_proxy.localkafka.front import Front

from tests.support.programs import built_with_go
from tests.support.raw import Raw
from tests.support.view_console import Console
from tests.support.view_group import Group, produce

pytestmark = [pytest.mark.broker, pytest.mark.timeout(420)]

SLOTS, RECORDS = 2, 1000
Fresh = Callable[[str], str]


def test_the_console_is_understood_though_two_threads_print() -> None:
    """Records are parsed whole, even if log lines interrupt them, and each rebalance in its order."""
    logged = "INFO org.apache.kafka.clients.consumer.internals.ConsumerMembershipManager - [Consumer clientId=c] "
    printed = (
        f"Words\n{logged}Reconciling assignment with local epoch 0\n\tMember:   m\n\tAssigned partitions:  [v-1-0]\n"
        "\tAdded partitions (assigned - owned):     [v-1-0, v-1-3]\n\tRevoked partitions (owned - assigned):   []\n\n"
        f"Partition:3\tOffset:1\tkey-1\t1\nPartition:3{logged}Stable.\n\tOffset:2\tkey-2\t2\n"
        f"Partition:3\tOffset:5\tkey-5\t5{logged}Revoking previously assigned partitions [v-1-3]\n\n"
        f"Partition:0\tOffset:6\tkey-6\t{logged}Reconciling\n\tMember:    m\n\n6\n"
    )
    console = Console()
    assert [reported for line in printed.splitlines(keepends=True) for reported in console.reported(line)] == [
        ["assigned", [0, 3]],
        ["record", 3, 1, "key-1", "1"],
        ["record", 3, 2, "key-2", "2"],
        ["revoked", [3]],
        ["assigned", [0]],
        ["record", 3, 5, "key-5", "5"],
        ["record", 0, 6, "key-6", "6"],
    ]


def franz_go() -> str:
    return str(built_with_go("franzgo"))


@pytest.mark.parametrize(
    ("front", "client", "assignor"),
    [("3.9.1", franz_go, ""), ("4.3.0", lambda: "console-4.3.0", "consumer")],
    indirect=["front"],
    ids=["franz-go-3.9.1", "console-consumer-4.3.0"],
)
def test_a_member_comes_and_one_leaves_and_nothing_is_lost(
    front: Front, fresh: Fresh, client: Callable[[], str], assignor: str
) -> None:
    """franz-go with its own assignor, Kafka's console consumer in a group of KIP-848."""
    with Raw(front.bootstrap) as raw:
        topic = raw.create_topic(fresh("base"))
        values = produce(raw, topic, 0, RECORDS // 2)
        view = f"__view.r{SLOTS}.{topic.name}"
        with closing(Group(client(), front.bootstrap, fresh("group"), view, assignor)) as group:
            group.join(2)
            group.wait_assigned(SLOTS)
            group.leave()
            values += produce(raw, topic, len(values), RECORDS)
            group.wait_assigned(SLOTS)
            group.wait_read(values)
            group.check(SLOTS)
