"""Several features in one API: each sees what is its, passes on what is not, and may amend what is said after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_share_proxy.forwarding.dispatch.chain import in_order, next_response
from kafka_share_proxy.forwarding.dispatch.declared_api import Served
from kafka_share_proxy.forwarding.dispatch.early_matches import AnyOf, ByKnownGroup, ContainsAny, EveryRequest, Whenever
from kafka_share_proxy.forwarding.served.interfaces import Call, never_selected
from kafka_share_proxy.loop.promise import Task, settled
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.views import view_apis
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.messages import Message

from tests.support import ports
from tests.support.view_broker import World

COMMIT, VERSION = 8, 9
REQUEST, RESPONSE = registry.message("OffsetCommitRequest"), registry.message("OffsetCommitResponse")
WORLD = ports.World()


class Broker:
    """Broker that confirms every committed offset."""

    id, node_id, client_host = 1, 1, "127.0.0.1"

    def __init__(self) -> None:
        self.memory: dict[str, Any] = {}
        self.requested: list[list[str]] = []

    def send_request(self, key: int, version: int, body: bytes) -> Any:
        request = registry.request(key, version).decode(body)
        self.requested.append([topic.name for topic in request.topics])
        return settled(memoryview(registry.response(key, version).encode(responded(*self.requested[-1]))))

    def on_close(self, callback: Any) -> None:
        """Never closed."""

    def not_on_close(self, callback: Any) -> None:
        """Never closed."""


def commit(*topics: str, broker: Broker | None = None) -> Call:
    requested = [REQUEST.OffsetCommitRequestTopic(name=name, partitions=[]) for name in topics]
    connection: Any = broker or Broker()
    return Call(COMMIT, VERSION, 7, "c", REQUEST(group_id="g", topics=requested), connection)


def responded(*topics: str) -> Any:
    return RESPONSE(topics=[RESPONSE.OffsetCommitResponseTopic(name=name, partitions=[]) for name in topics])


def says(response: Any, here: bool = True) -> Served:
    async def handle(_: Call) -> Any:
        return response

    return Served(handle, Whenever(lambda: here))


def takes(topic: str) -> Served:
    """Handler that confirms the offsets of one topic itself, and leaves the rest to the next features."""

    async def handle(call: Call) -> Any:
        mine = [each for each in call.message.topics if each.name == topic]
        if not mine:
            return None
        call.message.topics = [each for each in call.message.topics if each.name != topic]
        response = await next_response(call) if call.message.topics else responded()
        response.topics += responded(f"{topic}, by its feature").topics
        return response

    return Served(handle, ContainsAny((topic.encode(),)))


def run(served: Served, call: Call) -> Any:
    task: Task[Any] = Task(served.handler(call), lambda _: None)
    task.start()
    assert task.finished
    assert task.error is None
    return task.value


def names(response: Message) -> list[str]:
    return [topic.name for topic in response.topics]  # type: ignore[attr-defined]


def chain(*links: Served) -> Served:
    return in_order([{COMMIT: link} for link in links])[COMMIT]


def test_the_first_handler_runs_first_and_requests_that_it_passes_are_checked_again() -> None:
    """Three ways: the first one responds, the second one responds, the request is forwarded."""
    for first, second, here, expected in (
        (b"first", b"second", True, b"first"),
        (None, b"second", True, b"second"),
        (None, b"second", False, None),
        (b"first", b"second", False, b"first"),
    ):
        assert run(chain(says(first), says(second, here)), commit("t")) == expected


def test_a_request_is_picked_when_one_wants_it() -> None:
    """And an API that is served here always stays so."""
    wants, not_ = says(None, True), says(None, False)
    frame = memoryview(b"")
    for one, other, expected in ((wants, not_, True), (not_, wants, True), (not_, not_, False)):
        joined = chain(one, other)
        assert joined.wants is not None
        assert joined.wants.matcher(COMMIT, VERSION)(frame) is expected
    assert chain(not_, Served(not_.handler)).wants is None


def test_a_selection_from_the_decoded_request_does_not_read_its_bytes() -> None:
    async def never(_: Call) -> bool:
        return False

    picky = Served(says(b"picky").handler, lambda _: True, never)
    assert run(chain(picky, says(b"second")), commit("t")) == b"second"


def test_three_features_share_one_request_and_the_broker_gets_the_rest() -> None:
    """Each takes its part of the decoded message, and adds its part to the decoded response."""
    broker = Broker()
    response = run(chain(takes("a"), takes("b"), takes("c")), commit("a", "b", "c", "d", broker=broker))
    assert broker.requested == [["d"]]
    assert names(response) == ["d", "c, by its feature", "b, by its feature", "a, by its feature"]


def test_a_feature_without_a_part_in_the_altered_request_is_passed_over() -> None:
    """The next features get the message in its present form, not as it arrived."""
    broker = Broker()
    call = commit("a", "b", broker=broker)
    assert names(run(chain(takes("a"), takes("a"), takes("b")), call)) == ["b, by its feature", "a, by its feature"]
    assert broker.requested == []


def test_a_whole_frame_from_the_next_handler_is_decoded() -> None:
    """A feature may return bytes; an amending feature gets the message."""
    frame = ports.frames.response(COMMIT, VERSION, 7, responded("framed"))
    assert names(run(chain(takes("a"), says(frame)), commit("a", "t"))) == ["framed", "a, by its feature"]


def test_after_the_last_handler_is_the_broker() -> None:
    """It gets the request as the client would have sent it."""
    broker = Broker()
    assert names(run(takes("a"), commit("a", "t", broker=broker))) == ["t", "a, by its feature"]
    assert broker.requested == [["t"]]


def test_what_only_one_of_them_serves_stays_as_it_is() -> None:
    """No wrapper, no cost."""
    view, other = says(None), says(None)
    assert in_order(({COMMIT: view}, {1: other})) == {COMMIT: view, 1: other}


def test_the_handlers_of_the_product_fit_together() -> None:
    """Every API of either is there; those of share groups that views do not touch are the same."""
    share, view = share_group_apis.served(WORLD.services), view_apis.served(World().views)
    both = in_order((view, share))
    assert set(both) == set(share) | set(view)
    assert {key: both[key] for key in set(share) - set(view)} == {key: share[key] for key in set(share) - set(view)}


def test_a_request_that_no_feature_selects_is_forwarded_immediately() -> None:
    """If each of them selects by group; else their predicates are called."""
    mine, theirs = {"mine": 1}, {"theirs": 1}
    unless: set[int] = set()
    a = says(None)._replace(wants=ByKnownGroup(ContainsAny((b"ic/",)), (mine,), words=(b"ic/",)))
    b = says(None)._replace(wants=ByKnownGroup(EveryRequest(), (theirs,), (unless,)))
    requested = says(None)._replace(wants=EveryRequest())

    def joined(*features: Served) -> Any:
        return in_order({COMMIT: each} for each in features)[COMMIT].wants

    exactly = AnyOf((ContainsAny((b"ic/",)), EveryRequest()))
    assert joined(a, b) == ByKnownGroup(exactly, (mine, theirs), (unless,), (b"ic/",))
    assert joined(b) == b.wants
    assert joined(a, requested) == AnyOf((a.wants, requested.wants))


@dataclass(frozen=True)
class Named:
    key: int = COMMIT
    version: int = VERSION


class Short:
    """Fast path that takes requests which no earlier feature wants."""

    def __init__(self) -> None:
        self.took: list[bool] = []

    def __call__(
        self, connection: Any, frame: memoryview, request: Any, is_selected_before: Any = never_selected
    ) -> bool:
        self.took.append(not is_selected_before("g"))
        return self.took[-1]


def test_the_short_way_is_for_what_no_feature_in_front_wants() -> None:
    """The words in its bytes decide, if the exact match agrees too, and its group, however the chains are built."""
    short, groups = Short(), dict[str, int]()
    exactly = ContainsAny((b"__view.new",))
    views = says(None)._replace(wants=ByKnownGroup(exactly, groups=(), words=(b"__view.",)))
    shares = says(None)._replace(wants=ByKnownGroup(EveryRequest(), (groups,)))
    commits = says(None)._replace(wants=ByKnownGroup(EveryRequest(), ()), synchronous_handler=short)
    chained = in_order(({COMMIT: views}, in_order(({COMMIT: shares}, {COMMIT: commits}))))[COMMIT].synchronous_handler
    assert chained is not None
    connection: Any = None

    def takes_it(text: bytes) -> bool:
        return chained(connection, memoryview(bytes(4) + text), Named())

    assert [takes_it(text) for text in (b"orders", b"__view.old", b"__view.new")] == [True, True, False]
    assert len(short.took) == 2
    groups["g"] = 1
    assert not takes_it(b"orders")
    assert short.took[-1] is False
    both = in_order(({COMMIT: shares}, {COMMIT: commits._replace(synchronous_handler=chained)}))[
        COMMIT
    ].synchronous_handler
    assert both is not None
    groups.clear()
    assert both(connection, memoryview(b"1234orders"), Named())
