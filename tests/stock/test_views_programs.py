"""Views read by stock clients that are not Python's; in short. The long forms are `tests/long/run`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from localkafka.front import Front

from tests.support.programs import built, need
from tests.support.raw import Raw
from tests.support.view_group import Group, produce

pytestmark = [pytest.mark.broker, pytest.mark.timeout(420)]

SLOTS, RECORDS = 2, 1000
Fresh = Callable[[str], str]


def franz_go() -> str:
    return str(built("franzgo", [need("go"), "build", "-o", "franzgo", "."], "franzgo") / "franzgo")


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
