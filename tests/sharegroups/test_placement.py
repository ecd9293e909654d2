"""Placement of a share group: chosen once for each, by rule, by the brokers' abilities, and by existing state."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.fleet.group_owners import PeerLost
from kafka_share_proxy.forwarding.dispatch.declared_api import HOLD_MAX_S
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Promise, Task, settled
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.sharegroups.carried_requests import CarriedShareRequests
from kafka_share_proxy.sharegroups.placement import ServeRule, ShareRules
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import World, responded

RULES = (ServeRule(groups="mine-*", serve="local"), ServeRule(groups="theirs-*", serve="upstream"))
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
FORWARDED = "forwarded"


class Mixed:
    """A world whose brokers have share groups, or not, and handlers that choose."""

    def __init__(self, *, native: bool = True, default: Any = "auto") -> None:
        self.world = World()
        self.topic = self.world.cluster.create("t")
        services = self.world.services
        rules = ShareRules(native, (*RULES, ServeRule(serve=default)))
        self.served = share_group_apis.served(services, rules)
        self.upstream: dict[int, Any] = {}
        """API key -> response of the broker to requests on behalf of the client."""
        self.requested: list[Any] = []
        self.client = self.world.connect()
        send_request = self.client.send_request

        def response(key: int, version: int, body: bytes) -> Any:
            if key not in self.upstream:
                return send_request(key, version, body)
            self.requested.append(registry.request(key, version).decode(body))
            message = self.upstream[key]
            message = message(self.requested[-1]) if callable(message) else message
            return settled(memoryview(registry.response(key, version).encode(message)))

        self.client.send_request = response  # type: ignore[method-assign]

    def hold(self, group_id: str) -> None:
        """The group has state here."""
        self.world.services.coordinator.add_group(group_id)

    def send(self, key: int, version: int, **fields: Any) -> Task[bytes | None] | str:
        """Send to the handler, or to the broker, as the routes do."""
        message = registry.message(f"{registry.API_KEYS[key]}Request")(**fields)
        frame = memoryview(frames.request(key, version, 7, "client", message))[4:]
        served = self.served[key]
        if served.wants is not None and not served.wants.matcher(key, version)(frame):
            return FORWARDED
        call = Call(key, version, 7, "client", frames.decode_request(frame)[1], self.client)
        task: Task[bytes | None] = Task(responded(served.handler, call), lambda _: None)
        task.start()
        return task

    def send_request(self, key: int, version: int, **fields: Any) -> Any:
        """Return the decoded response, or FORWARDED."""
        sent = self.send(key, version, **fields)
        return sent if isinstance(sent, str) else reported(sent, key, version)

    def join(self, group_id: str, epoch: int = 0) -> Any:
        topics = ["t"] if epoch == 0 else None
        response = self.send_request(
            76, 1, group_id=group_id, member_id="m", member_epoch=epoch, subscribed_topic_names=topics
        )
        return response if response == FORWARDED else (response.error_code, response.error_message)


def reported(task: Task[bytes | None], key: int, version: int) -> Any:
    assert task.finished, "no answer yet"
    if task.error is not None:
        raise task.error
    if task.value is None:
        return FORWARDED
    return frames.decode_response(key, version, memoryview(task.value)[4:])[1]


@pytest.mark.parametrize(
    ("native", "default", "group_id", "joined"),
    [
        (True, "auto", "any", FORWARDED),
        (True, "auto", "mine-1", 0),
        (True, "auto", "theirs-1", FORWARDED),
        (True, "local", "any", 0),
        (True, "local", "theirs-1", FORWARDED),
        (True, "upstream", "mine-1", 0),
        (True, "upstream", "any", FORWARDED),
        (False, "auto", "any", 0),
        (False, "auto", "mine-1", 0),
        (False, "auto", "theirs-1", ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_first_rule_that_names_a_group_says_where_it_lives(native, default, group_id, joined):
    """auto is the brokers' where every one of them can."""
    response = Mixed(native=native, default=default).join(group_id)
    assert (response if response == FORWARDED else response[0]) == joined


def test_group_with_state_here_stays_until_it_is_deleted():
    """Whatever the brokers support; afterwards it is theirs, on every connection."""
    mixed = Mixed()
    mixed.hold("old")
    assert mixed.join("old")[0] == 0
    assert mixed.join("old", -1)[0] == 0
    deleted = mixed.send_request(42, 2, groups_names=["old"])
    assert [result.error_code for result in deleted.results] == [0]
    assert mixed.join("old") == FORWARDED


def test_group_that_is_to_be_the_brokers_but_has_state_here_is_refused():
    """69 for a joining member, with the reason; existing state is never hidden silently. What is held stays
    reachable.
    """
    mixed = Mixed()
    mixed.hold("theirs-1")
    code, text = mixed.join("theirs-1")
    assert (code, "it has state at the proxy" in text) == (ErrorCode.GROUP_ID_NOT_FOUND, True)
    assert [note[0] for note in mixed.world.notes] == ["share-group-not-served"]
    described = mixed.send_request(77, 1, group_ids=["theirs-1"])
    assert [(group.group_id, group.error_code) for group in described.groups] == [("theirs-1", 0)]


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        (78, 2, {"member_id": "m", "share_session_epoch": 0, "max_wait_ms": 0, "topics": []}),
        (79, 2, {"member_id": "m", "share_session_epoch": 1, "topics": []}),
        (91, 0, {"topics": []}),
        (92, 0, {"topics": []}),
    ],
)
def test_every_request_about_a_group_goes_where_it_lives(key, version, fields):
    """Records, acknowledgements and offsets as well as membership."""
    mixed = Mixed()
    assert mixed.send_request(key, version, group_id="any", **fields) == FORWARDED
    assert mixed.send_request(key, version, group_id="mine-1", **fields) != FORWARDED


def test_description_of_several_groups_is_from_both_sides():
    """The order is that of the request; the broker gets only its own groups."""
    mixed = Mixed()
    mixed.hold("old")
    message = registry.message("ShareGroupDescribeResponse")
    theirs = [
        message.DescribedGroup(group_id=name, group_state="Stable", error_code=0, members=[]) for name in ("x", "y")
    ]
    mixed.upstream[77] = message(groups=theirs)
    response = mixed.send_request(77, 1, group_ids=["x", "old", "y"])
    assert [(g.group_id, g.group_state) for g in response.groups] == [
        ("x", "Stable"),
        ("old", "Empty"),
        ("y", "Stable"),
    ]
    assert [request.group_ids for request in mixed.requested] == [["x", "y"]]
    assert mixed.send_request(77, 1, group_ids=["x", "y"]) == FORWARDED


def test_offsets_of_several_groups_come_from_both_sides():
    """DescribeShareGroupOffsets in one response."""
    mixed = Mixed()
    mixed.hold("old")
    request, response = (registry.message(f"DescribeShareGroupOffsets{kind}") for kind in ("Request", "Response"))
    group, response_group = (
        request.DescribeShareGroupOffsetsRequestGroup,
        response.DescribeShareGroupOffsetsResponseGroup,
    )
    mixed.upstream[90] = response(groups=[response_group(group_id="x", topics=[])])
    merged = mixed.send_request(90, 1, groups=[group(group_id=name, topics=None) for name in ("old", "x")])
    assert [(each.group_id, each.error_code) for each in merged.groups] == [("old", 0), ("x", 0)]
    assert [[each.group_id for each in requested.groups] for requested in mixed.requested] == [["x"]]


def test_settings_of_a_forwarded_group_are_the_brokers():
    """Those of local groups are kept here; both in one request."""
    mixed = Mixed()
    mixed.hold("old")
    message = registry.message("DescribeConfigsRequest")
    resource = message.DescribeConfigsResource
    requested = [resource(resource_type=32, resource_name=name, configuration_keys=None) for name in ("x", "old")]
    response = registry.message("DescribeConfigsResponse")

    def broker(request):
        names = [(each.resource_type, each.resource_name) for each in request.resources]
        return response(
            results=[
                response.DescribeConfigsResult(
                    error_code=0, error_message="", resource_type=kind, resource_name=name, configs=[]
                )
                for kind, name in names
            ]
        )

    mixed.upstream[32] = broker
    merged = mixed.send_request(32, 4, resources=requested)
    assert [(each.resource_name, len(each.configs) > 5) for each in merged.results] == [("x", False), ("old", True)]
    assert mixed.send_request(32, 4, resources=requested[:1]) == FORWARDED


def test_no_group_is_sent_to_the_brokers_before_the_groups_with_state_are_known():
    """Held while state is loaded, then chosen; where that takes too long the client is to come again."""
    mixed = Mixed()
    gate, timers = mixed.world.services.gate, mixed.world.timers
    gate.close(LOADING, "share state is being loaded")
    fields = {"member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["t"]}
    waiting = [mixed.send(76, 1, group_id=group_id, **fields) for group_id in ("old", "new")]
    mixed.hold("old")
    gate.open()
    assert reported(waiting[0], 76, 1).error_code == 0
    assert reported(waiting[1], 76, 1) == FORWARDED
    gate.close(LOADING, "share state is being loaded")
    late = mixed.send(76, 1, group_id="new", **fields)
    timers.advance(2 * HOLD_MAX_S + 0.2)
    assert reported(late, 76, 1).error_code == LOADING


def test_rules_that_agree_choose_nothing():
    """All here: the handlers are those of a proxy without rules."""
    assert not ShareRules(False, (ServeRule(groups="a", serve="local"), ServeRule())).are_mixed
    assert not ShareRules(True, (ServeRule(groups="a", serve="local"), ServeRule(serve="local"))).are_mixed
    assert not ShareRules(True, (ServeRule(serve="upstream"),)).are_mixed
    assert ShareRules(True, (ServeRule(),)).are_mixed
    assert ShareRules(False, (ServeRule(groups="a", serve="upstream"), ServeRule())).are_mixed


class Owner:
    """Another proxy of the fleet, which owns every group."""

    def __init__(self) -> None:
        self.queries: list[tuple[str, Promise[bool]]] = []

    def knows(self, feature: str, group_id: str) -> Promise[bool]:
        self.queries.append((group_id, Promise()))
        return self.queries[-1][1]

    def serve(self, call: Any, feature: str) -> Promise[bytes | None]:
        message = registry.message(f"{registry.API_KEYS[call.key]}Response")
        return settled(frames.response(call.key, call.version, call.correlation_id, message(error_code=-1)))

    def take_client(self, call: Any) -> None:
        """Clients stay: this is a proxy of another machine."""

    def give_up(self, response: Any) -> None:
        """Nothing waits."""


class Fleet:
    """A fleet of this proxy and `other`. None: there is no link to it."""

    def __init__(self, other: Owner | None) -> None:
        self.other, self.groups = other, dict[str, None]()

    def owner(self, partition: int) -> Owner | None:
        return self.other


class MixedFleet(Mixed):
    """Brokers with share groups, and a proxy that owns nothing."""

    def __init__(self, other: Owner | None) -> None:
        super().__init__()
        services = self.world.services
        services.fleet = Fleet(other)  # type: ignore[assignment]
        services.gate.close(ErrorCode.NOT_COORDINATOR, "another proxy owns it")
        self.served = share_group_apis.served(services, ShareRules(True, (*RULES, ServeRule())))


FROM_OWNER = -1
"""Error code of the owner's responses."""


def test_in_a_fleet_the_owner_says_once_that_the_brokers_serve_a_group():
    owner = Owner()
    fleet = MixedFleet(owner)
    joining = fleet.send(76, 1, group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"])
    owner.queries[0][1].set(False)
    assert reported(joining, 76, 1) == FORWARDED
    assert fleet.join("g") == FORWARDED
    assert [group_id for group_id, _ in owner.queries] == ["g"]


def test_in_a_fleet_the_owner_serves_what_it_holds_or_may_hold():
    """Also if it does not respond in time, or the link to it is lost."""
    owner = Owner()
    fleet = MixedFleet(owner)
    for settle in (
        lambda promise: promise.set(True),
        lambda promise: promise.fail(PeerLost("gone")),
        lambda _promise: fleet.world.timers.advance(HOLD_MAX_S),
    ):
        joining = fleet.send(76, 1, group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"])
        settle(owner.queries[-1][1])
        assert reported(joining, 76, 1).error_code == FROM_OWNER
    fleet.world.services.fleet.groups["held"] = None
    assert fleet.join("held")[0] == FROM_OWNER
    assert len(owner.queries) == 3


def test_in_a_fleet_an_unknown_owner_is_not_taken_for_the_brokers():
    fleet = MixedFleet(None)
    joining = fleet.send(76, 1, group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"])
    fleet.world.timers.advance(HOLD_MAX_S)
    assert reported(joining, 76, 1).error_code == ErrorCode.NOT_COORDINATOR


def test_owner_of_a_fleet_creates_no_group_that_the_brokers_serve():
    """Other proxies have not noticed the share groups of the brokers yet: their members retry."""
    mixed = Mixed()
    services = mixed.world.services
    services.fleet = Fleet(None)  # type: ignore[assignment]
    rules = ShareRules(True, (ServeRule(),))
    handlers = share_group_apis.of_owner(services, rules)
    message = registry.message("ShareGroupHeartbeatRequest")
    request = message(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"])
    call = Call(76, 1, 7, "client", request, mixed.client)
    task: Task[Any] = Task(handlers[76](call), lambda _: None)
    task.start()
    assert reported(task, 76, 1).error_code == LOADING
    carried = CarriedShareRequests(services, handlers, share_group_apis.choice_of(services, rules))
    assert not carried.knows("g")
    mixed.hold("g")
    assert carried.knows("g")
