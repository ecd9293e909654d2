"""Share groups on the admin listener."""

from __future__ import annotations

from http import HTTPStatus
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
import trio
import trio.testing
from kafka_share_proxy.feature.admin import AdminRequest
from kafka_share_proxy.fleet.group_owners import CommandResult, PeerLost
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.sharegroups import admin_pages
from kafka_share_proxy.sharegroups.moves_here import Moves
from kafka_share_proxy.sharegroups.placement import ServeRule, ShareRules
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import SlowJournal, World, acquired

UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE
RELEASE = "/groups/a%2Fg/members/m%201/release"


@pytest.fixture
def world() -> World:
    """Group a/g, whose member "m 1" holds ten records."""
    share_world = World(journal=SlowJournal())
    share_world.configure("a/g", share_auto_offset_reset="earliest")
    topic = share_world.cluster.create("t")
    share_world.cluster.produce(topic, 10)
    member = share_world.member(group_id="a/g", member_id="m 1")
    member.heartbeat(0, ["t"])
    assert acquired(member.fetch(topic)) == [(0, 9, 1)]
    return share_world


def requested(path, method="GET", *, forbidden=""):
    _, first, *parts = map(unquote, path.split("/"))
    assert first == admin_pages.PATH
    return AdminRequest(method=method, parts=parts, forbidden=forbidden)


async def responded(world, request):
    return await admin_pages.response(world.services, request)


async def test_groups_and_one_group(world):
    """Ids come percent-encoded."""
    status, body = await responded(world, requested("/groups"))
    assert (status, [line["group"] for line in body["groups"]]) == (HTTPStatus.OK, ["a/g"])
    status, body = await responded(world, requested("/groups/a%2Fg"))
    assert (status, body["locks"][0]["member"]) == (HTTPStatus.OK, "m 1")
    assert (await responded(world, requested("/groups/absent")))[0] == HTTPStatus.NOT_FOUND
    assert await responded(world, requested("/groups/a/b/c")) is None
    assert (await responded(world, requested("/groups", "POST")))[0] == HTTPStatus.METHOD_NOT_ALLOWED


async def test_a_group_whose_state_is_loading_is_not_reported_as_absent(world):
    """503 with the gate's reason, and the list says that it is not complete."""
    status, body = await responded(world, requested("/groups"))
    assert (status, body["complete"]) == (HTTPStatus.OK, True)
    gate = world.services.gate
    partition = gate.partition_of("late")
    gate.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "share state is being read", [partition])
    status, body = await responded(world, requested("/groups/late"))
    assert status == HTTPStatus.SERVICE_UNAVAILABLE
    assert body["reason"] == 'share group "late" is not known yet: share state is being read; try again soon'
    status, body = await responded(world, requested("/groups/late/members/m/release", "POST"))
    assert status == HTTPStatus.SERVICE_UNAVAILABLE
    status, body = await responded(world, requested("/groups"))
    assert (body["complete"], body["reason"]) == (False, "share state is being read")
    gate.open([partition])
    assert (await responded(world, requested("/groups/late")))[0] == HTTPStatus.NOT_FOUND


async def test_a_partition_that_another_proxy_owns_leaves_the_list_complete(world):
    """Its groups are named under `elsewhere`; a group in none of the lists does not exist."""
    world.services.fleet = SimpleNamespace(groups={"remote": None})
    gate = world.services.gate
    reason = "share state is owned by another proxy"
    gate.close(ErrorCode.NOT_COORDINATOR, reason, [gate.partition_of("remote"), gate.partition_of("absent")])
    _, body = await responded(world, requested("/groups"))
    assert (body["complete"], body["elsewhere"]) == (True, ["remote"])
    for group in ("remote", "absent"):
        assert (await responded(world, requested(f"/groups/{group}")))[0] == HTTPStatus.NOT_FOUND


async def test_release_is_reported_when_it_is_durable(world):
    status, body = await responded(world, requested(RELEASE, "POST"))
    assert (status, body["released_records"], body["durable"]) == (HTTPStatus.OK, 10, True)
    assert (await responded(world, requested("/groups/x/members/m/release", "POST")))[0] == HTTPStatus.NOT_FOUND


async def test_preview_of_a_release_names_the_records_and_releases_none(world):
    for _ in range(2):
        status, body = await responded(world, requested(RELEASE, "GET", forbidden="only read"))
        assert (status, body["group"], body["member"], body["records"]) == (HTTPStatus.OK, "a/g", "m 1", 10)
        assert body["change"] == "Release all 10 records that member m 1 of share group a/g holds?"
    for path in ("/groups/x/members/m/release", "/groups/a%2Fg/members/m1/release"):
        assert (await responded(world, requested(path)))[0] == HTTPStatus.NOT_FOUND


async def test_release_of_a_member_that_does_not_exist_is_refused(world):
    """Nothing was taken back from anybody: that is no success."""
    status, body = await responded(world, requested("/groups/a%2Fg/members/m1/release", "POST"))
    assert (status, body["reason"].split(",")[0]) == (HTTPStatus.NOT_FOUND, 'share group "a/g" has no member "m1"')
    world.member(group_id="a/g", member_id="idle one....").heartbeat(0, ["t"])
    status, body = await responded(world, requested("/groups/a%2Fg/members/idle%20one..../release", "POST"))
    assert (status, body["released_records"]) == (HTTPStatus.OK, 0)


async def test_a_slow_journal_is_not_waited_for_without_end(world, autojump_clock: trio.testing.MockClock):
    world.journal.slow = True
    status, body = await responded(world, requested(RELEASE, "POST"))
    assert (status, body["durable"]) == (HTTPStatus.ACCEPTED, False)


async def test_request_that_may_not_change_anything_releases_nothing(world):
    status, body = await responded(world, requested(RELEASE, "POST", forbidden="not from there"))
    assert (status, body) == (HTTPStatus.FORBIDDEN, {"reason": "not from there"})
    assert (await responded(world, requested("/groups/a%2Fg", forbidden="not from there")))[1]["locks"] != []


async def test_where_brokers_serve_share_groups_there_are_none_here():
    status, body = await admin_pages.of_brokers(requested("/groups"))
    assert (status, "served by the brokers" in body["reason"]) == (HTTPStatus.NOT_FOUND, True)


async def test_groups_of_other_proxies_are_listed_and_described_only_there(world):
    world.services.fleet = SimpleNamespace(groups={"far"})
    assert (await responded(world, requested("/groups")))[1]["elsewhere"] == ["far"]
    status, body = await responded(world, requested("/groups/far"))
    assert (status, "another proxy" in body["reason"]) == (HTTPStatus.NOT_FOUND, True)
    assert "another proxy" not in (await responded(world, requested("/groups/none")))[1]["reason"]


class Owner:
    """Another proxy of the fleet, which owns every group. It does not respond until `result` is set."""

    def __init__(self):
        self.commands, self.result = [], Promise()

    def command(self, feature, words):
        self.commands.append(words)
        return self.result


def moving(world, owner):
    """Return the function that requests a page about moves at a proxy that owns nothing. `owner`: None for no link."""
    world.services.gate.close(ErrorCode.NOT_COORDINATOR, "another proxy owns it")
    world.services.fleet = SimpleNamespace(groups={"far": None}, owner=lambda _: owner, members={"b:1": owner})
    moves = Moves(world.services, ShareRules(True, (ServeRule(),)))
    return lambda request: admin_pages.response(world.services, request, moves=moves)


async def test_move_of_a_group_that_another_proxy_owns_is_begun_there(world):
    owner = Owner()
    page = moving(world, owner)
    owner.result.set(CommandResult(202, {"phase": "checking"}))
    assert await page(requested("/groups/far/hand-over/60/force", "POST")) == (
        HTTPStatus.ACCEPTED,
        {"phase": "checking"},
    )
    assert (await page(requested("/groups/far/hand-over")))[1] == {"phase": "checking"}
    assert owner.commands == [["POST", "far", "hand-over", "60", "force"], ["GET", "far", "hand-over"]]
    refused = await page(requested("/groups/far/hand-over/60", "POST", forbidden="not allowed"))
    assert (refused[0], len(owner.commands)) == (HTTPStatus.FORBIDDEN, 2)


async def test_move_is_unavailable_while_the_owner_is(world, autojump_clock: trio.testing.MockClock):
    """Without a link to it, without its response, or after the link was lost."""
    for owner in (None, Owner()):
        assert (await moving(world, owner)(requested("/groups/far/hand-over")))[0] in (
            HTTPStatus.NOT_FOUND,
            UNAVAILABLE,
        )
    lost = Owner()
    lost.result.fail(PeerLost("the link ended"))
    assert await moving(world, lost)(requested("/groups/far/hand-over")) == (UNAVAILABLE, {"reason": "the link ended"})


async def test_command_that_is_not_known_is_not_found(world):
    moves = Moves(world.services, ShareRules(True, (ServeRule(),)))
    late, more = ["POST", "a/g", "hand-over", "soon"], ["POST", "a/g", "hand-over", "1", "x"]
    for words in ([], ["GET"], ["GET", "a/g"], late, more):
        assert admin_pages.command(world.services, moves, words).status == HTTPStatus.NOT_FOUND
    assert admin_pages.command(world.services, moves, ["GET", "a/g", "hand-over", "1"]).status == 405
