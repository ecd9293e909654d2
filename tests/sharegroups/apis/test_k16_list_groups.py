"""ListGroups: the broker's groups and ours."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.brokers import rights
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.loop.slices import Work
from kafka_share_proxy.sharegroups.apis import k16_list_groups
from kafka_share_proxy.sharegroups.apis.k16_list_groups import is_listed_at
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.values import UNKNOWN_NODE

from tests.support.ports import responded
from tests.support.stretches import longest_stretch

LIST = 16
PORTION = 50
"""Groups in one request for rights, where the number is to have no effect."""
FEW, MANY = 200, 4200
"""Groups that are listed: more than there are in one slice of the encoder, and nearly as many as rights are cached."""


def upstream(*groups: tuple[str, str], error_code: int = 0):
    """A broker with these groups: (id, protocol type)."""

    def response(version, request):
        message = registry.message("ListGroupsResponse")
        rows = [message.ListedGroup(group_id=name, protocol_type=kind) for name, kind in groups]
        return message(groups=rows, error_code=error_code)

    return response


def rows(response):
    return [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in response.groups]


def test_more_groups_than_rights_are_remembered_for_are_listed_all_the_same(world, monkeypatch):
    """The broker's current response for each group counts, cached or not."""
    monkeypatch.setattr(rights, "VERDICTS_BYTES_MAX", 10 * rights.VERDICT_BYTES)
    for number in range(600):
        world.group(f"g{number:03}")
    world.broker.denied.update({("DESCRIBE", "g007"), ("DESCRIBE", "cluster")})
    world.broker.responses[LIST] = upstream()
    for _ in range(2):
        ids = [group.group_id for group in world.call(LIST, 5).groups]
        assert ids == [f"g{number:03}" for number in range(600) if number != 7]


def test_the_longest_stretch_does_not_grow_with_the_number_of_groups(world, monkeypatch):
    """Other clients are served between two stretches. Listing 18,777 groups took steps of 20 ms."""
    for module in (rights, k16_list_groups):
        monkeypatch.setattr(module, "RIGHTS_AT_ONCE", PORTION)
    world.broker.responses[LIST] = upstream()
    request = registry.message("ListGroupsRequest")(states_filter=["Empty"], types_filter=[])
    stretches, responses = [], []
    for first, last in pairwise((0, 3, FEW, MANY)):
        for number in range(first, last):
            world.group(f"g{number:04}")
        rights.forget(world.client)

        async def list_groups(work):
            call = Call(LIST, 5, 1, None, request, world.client, work, memoryview(bytes(9000)))
            responses.append(await responded(partial(k16_list_groups.handle, services=world.services), call))

        stretches.append(longest_stretch(list_groups, lambda: None))
    listed = [len(frames.decode_response(LIST, 5, memoryview(each)[4:])[1].groups) for each in responses]
    assert listed == [3, FEW, MANY]
    assert stretches[2] < 1.1 * stretches[1], f"{stretches} instructions with {listed} groups"


@pytest.mark.parametrize("version", range(6))
def test_ours_follow_the_brokers(world, version):
    """Protocol type share always, state from v4, type from v5 on."""
    world.group("empty")
    world.group("full", "member")
    world.broker.responses[LIST] = upstream(("classic", "consumer"))
    state = ("Empty", "Stable") if version >= 4 else ("", "")
    kind = "share" if version >= 5 else ""
    assert rows(world.call(LIST, version)) == [
        ("classic", "consumer", "", ""),
        ("empty", "share", state[0], kind),
        ("full", "share", state[1], kind),
    ]


@pytest.mark.parametrize(
    ("states", "types", "ids"),
    [
        ([], ["Share"], ["empty", "full"]),
        ([], ["CLASSIC", "share"], ["empty", "full"]),
        ([], ["consumer"], []),
        ([], ["bogus"], []),
        (["EMPTY"], [], ["empty"]),
        (["stable", "bogus"], ["share"], ["full"]),
        (["Dead"], [], []),
    ],
)
def test_filters_are_compared_without_case(world, states, types, ids):
    """Item 68; the filters reach the broker as they are."""
    world.group("empty")
    world.group("full", "member")
    world.broker.responses[LIST] = upstream()
    response = world.call(LIST, 5, states_filter=states, types_filter=types)
    assert [group.group_id for group in response.groups] == ids
    (requested,) = world.broker.requests(LIST)
    assert (requested.states_filter, requested.types_filter) == (states, types)


def test_groups_one_may_not_describe_are_left_out(world):
    """The broker is queried for all of them together, and not again within a while."""
    for name in ("a", "b", "c"):
        world.group(name)
    world.broker.denied |= {("DESCRIBE", "b"), ("DESCRIBE", "cluster")}
    world.broker.responses[LIST] = upstream()
    for _ in range(2):
        assert [group.group_id for group in world.call(LIST, 5).groups] == ["a", "c"]
    assert len(world.broker.requests(10)) == len(world.broker.requests(60)) == 1


def test_who_may_describe_the_cluster_sees_every_group(world):
    """Brokers do the same; that right is only queried when a group is refused."""
    world.group("a")
    world.broker.responses[LIST] = upstream()
    world.call(LIST, 5)
    assert world.broker.requests(60) == []
    world.group("b")
    world.broker.denied.add(("DESCRIBE", "b"))
    assert [group.group_id for group in world.call(LIST, 5).groups] == ["a", "b"]


def test_nothing_is_requested_for_groups_that_are_not_shown(world):
    """A filter that admits none of ours needs no right."""
    world.group("a")
    world.broker.responses[LIST] = upstream(("classic", "consumer"))
    world.call(LIST, 5, types_filter=["classic"])
    assert world.broker.requests(10) == []


def test_the_group_of_the_proxies_is_hidden(world):
    """A group of that name but another protocol is not ours to hide."""
    world.broker.responses[LIST] = upstream(
        ("__proxy_owners", "proxy"), ("__proxy_owners2", "consumer"), ("x", "proxy")
    )
    assert [group.group_id for group in world.call(LIST, 5).groups] == ["__proxy_owners2", "x"]


def test_an_error_of_the_broker_is_passed_on(world):
    """The client retries; half a list would be taken for the whole."""
    world.group("a")
    world.broker.responses[LIST] = upstream(error_code=15)
    response = world.call(LIST, 5)
    assert (response.error_code, response.groups) == (15, [])


def test_each_group_is_listed_at_one_broker_and_at_the_bootstrap_listener(world):
    """The union of a client's responses from all brokers has every group once."""
    brokers = [SimpleNamespace(node_id=n, host="h", port=9000 + n, rack=None) for n in (1, 2, 3)]
    world.services.topology.fold(SimpleNamespace(cluster_id="c", brokers=brokers, topics=[]), 100.0)
    names = sorted(f"group-{number}" for number in range(20))
    for name in names:
        world.group(name)
    world.broker.responses[LIST] = upstream()
    listed_groups = []
    for node_id in (1, 2, 3):
        world.client.node_id = node_id
        here = [group.group_id for group in world.call(LIST, 5).groups]
        assert here
        listed_groups += here
    assert sorted(listed_groups) == names
    world.client.node_id = UNKNOWN_NODE
    assert [group.group_id for group in world.call(LIST, 5).groups] == names


@given(st.text(min_size=1), st.sets(st.integers(0, 20), min_size=1))
def test_the_choice_of_a_broker_is_stable(group_id, nodes):
    """Exactly one broker lists it; one that goes takes only its own groups with it."""
    (chosen,) = [node for node in nodes if is_listed_at(group_id, node, nodes)]
    for lost in nodes - {chosen}:
        assert is_listed_at(group_id, chosen, nodes - {lost})
    assert not is_listed_at(group_id, 99, nodes)


@pytest.mark.parametrize("code", [-1, 14, 30_137])
def test_where_the_broker_cannot_judge_there_is_no_list(world, code):
    """Neither the groups nor a part of them: its code, unless the principal may describe the cluster."""
    world.group("g")
    world.broker.responses[LIST] = upstream(("classic", "consumer"))
    response_class = registry.message("FindCoordinatorResponse")
    world.broker.responses[10] = lambda version, request: response_class(
        coordinators=[response_class.Coordinator(key="g", error_code=code)]
    )
    assert [group.group_id for group in world.call(LIST, 5).groups] == ["classic", "g"]
    rights.forget(world.client)
    world.broker.denied.add(("DESCRIBE", "cluster"))
    response = world.call(LIST, 5)
    assert (response.error_code, response.groups) == (code, [])


class Counting(Work):
    """Work that could be interrupted at every step, and remembers how often something was done between two."""

    def __init__(self) -> None:
        super().__init__()
        self.done = self.most = self.steps = 0

    def counted(self, function):
        def called(*args):
            self.done += 1
            return function(*args)

        return called

    async def step(self, size=0) -> None:
        self.most, self.done, self.steps = max(self.most, self.done), 0, self.steps + 1

    async def pause(self) -> None:
        await self.step()


def test_a_list_of_many_groups_can_be_interrupted_after_every_group(world, monkeypatch):
    """With 18,777 groups a list in one step kept all other clients waiting for a quarter of a second."""
    groups, work = 2_000, Counting()
    for number in range(groups):
        world.group(f"g{number:05}")
    world.broker.responses[LIST] = upstream(*((f"classic-{number}", "consumer") for number in range(groups)))
    for owner, name in ((k16_list_groups, "is_listed_at"), (k16_list_groups, "_entry"), (k16_list_groups, "_is_own")):
        monkeypatch.setattr(owner, name, work.counted(getattr(owner, name)))
    monkeypatch.setattr(rights.Rights, "group_code", work.counted(rights.Rights.group_code))
    call = replace(world._call(LIST, 5, world.frame(LIST, 5)), work=work)
    task = Task(responded(world._served()[LIST].handler, call), lambda _: None)
    task.start()
    _, response = frames.decode_response(LIST, 5, memoryview(task.value)[4:])
    assert [group.group_id for group in response.groups[groups:]] == [f"g{number:05}" for number in range(groups)]
    assert len(response.groups) == 2 * groups
    assert work.most == 1
    assert work.steps > 5 * groups, "of both lists, of the rights, and of the response"
