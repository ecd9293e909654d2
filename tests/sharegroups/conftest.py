"""A broker of a few lines, and share groups in front of it: what handlers of group APIs need to be tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata
from kafka_share_proxy.brokers.connection_slots import SlotValues
from kafka_share_proxy.durable.interfaces import JournalRefused
from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.served import services as shared_services
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Promise, Task, settled
from kafka_share_proxy.sharegroups import services, share_group_apis
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator
from kafka_share_proxy.sharegroups.model.group import Heartbeat, TopicInfo
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import UNKNOWN_NODE

from tests.support.far import FarWorld
from tests.support.manual_timers import ManualTimers
from tests.support.ports import Reply, SlowJournal, responded
from tests.support.scripted_cluster import Topic
from tests.support.share_steps import ten_records


class Clock:
    """Clock that does not move."""

    def now(self) -> float:
        return 100.0

    def wall_ms(self) -> int:
        return 0

    def call_at(self, deadline: float, callback: Callable[[], None]) -> Clock:
        return self

    def cancel(self) -> None:
        """Nothing was planned."""


class Broker:
    """Broker for the requests of group handlers; rights are granted unless revoked."""

    def __init__(self) -> None:
        self.denied: set[tuple[str, str]] = set()
        """(operation, group id), or (operation, "cluster")."""
        self.responses: dict[int, Callable[[int, Any], Any]] = {}
        """API key -> response to (version, request), instead of the usual one."""
        self.requested: list[tuple[int, int, Any]] = []
        """(key, version, request) in order."""

    def respond(self, key: int, version: int, request: Any) -> Any:
        self.requested.append((key, version, request))
        return (self.responses.get(key) or self._usual(key))(version, request)

    def requests(self, key: int) -> list[Any]:
        return [request for requested, _, request in self.requested if requested == key]

    def _usual(self, key: int) -> Callable[[int, Any], Any]:
        return {
            10: self._find_coordinator,
            12: self._heartbeat,
            47: self._offset_delete,
            60: self._describe_cluster,
        }[key]

    def _describe_cluster(self, version: int, request: Any) -> Any:
        operations = 0 if ("DESCRIBE", "cluster") in self.denied else 1 << 8
        return registry.message("DescribeClusterResponse")(cluster_id="c", cluster_authorized_operations=operations)

    def _code(self, operation: str, group_id: str, allowed: ErrorCode) -> ErrorCode:
        return ErrorCode.GROUP_AUTHORIZATION_FAILED if (operation, group_id) in self.denied else allowed

    def _heartbeat(self, version: int, request: Any) -> Any:
        code = self._code("READ", request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        return registry.message("HeartbeatResponse")(error_code=code)

    def _find_coordinator(self, version: int, request: Any) -> Any:
        message = registry.message("FindCoordinatorResponse")
        entries = [
            message.Coordinator(
                key=key, node_id=1, host="h", port=1, error_code=self._code("DESCRIBE", key, ErrorCode.NONE)
            )
            for key in request.coordinator_keys
        ]
        return message(coordinators=entries)

    def _offset_delete(self, version: int, request: Any) -> Any:
        assert not request.topics, "a question must not delete anything"
        code = self._code("DELETE", request.group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        return registry.message("OffsetDeleteResponse")(error_code=code, topics=[])


class Client:
    """One connection; implements interfaces.Connection."""

    def __init__(self, broker: Broker, node_id: int = UNKNOWN_NODE) -> None:
        self.id, self.node_id, self.client_host = 1, node_id, "127.0.0.1"
        self.slot_values: SlotValues = {}
        self._broker = broker

    @property
    def is_bootstrap(self) -> bool:
        return self.node_id == UNKNOWN_NODE

    def send_request(self, key: int, version: int, body: bytes) -> Any:
        request = registry.request(key, version).decode(body)
        response = self._broker.respond(key, version, request)
        return settled(memoryview(registry.response(key, version).encode(response)))

    def on_close(self, callback: Callable[[], None]) -> None:
        """Never closed."""

    def not_on_close(self, callback: Callable[[], None]) -> None:
        """Never closed."""


class RefusingJournal:
    """Refuses all."""

    def append(self, _records: Any) -> Promise[None]:
        refused: Promise[None] = Promise()
        refused.fail(JournalRefused(ErrorCode.NOT_COORDINATOR))
        return refused


class GroupWorld:
    """A proxy's share groups, with one broker and one client."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.client = Client(self.broker)
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.timers: Clock | ManualTimers = Clock()
        self.journal = MemoryJournal()
        self.services = self._services(BrokerShareLimits())

    def slow(self) -> SlowJournal:
        """Start again with a clock that moves and a journal that responds on demand."""
        self.timers, self.journal = ManualTimers(), SlowJournal()
        self.services = self._services(BrokerShareLimits())
        self.journal.slow = True
        return self.journal

    def refuse_writes(self) -> None:
        """Nothing can be stored from now on."""
        self.services.writes._journal = RefusingJournal()

    def _services(self, limits: BrokerShareLimits) -> services.ShareServices:
        base = shared_services.build(
            limits=Limits(),
            timers=self.timers,
            notes=lambda event, **context: self.notes.append((event, context)),
            book=AddressBook(20000, "proxy.example", lambda *_: True),
            topology=ClusterMetadata(),
            versions=EffectiveVersions(Offer((share_group_apis.OFFER,))),
        )
        return services.build(
            base, coordinator=ShareCoordinator(limits), options=services.ShareOptions(), journal=self.journal
        )

    def limit(self, **values: int) -> None:
        """Start again with these broker settings."""
        self.services = self._services(BrokerShareLimits(**values))

    def group(self, group_id: str, *members: str) -> None:
        """A share group held here, with these members."""
        coordinator = self.services.coordinator
        group = coordinator.add_group(group_id)
        for member in members:
            beat = Heartbeat(member_id=member, member_epoch=0, topics=("topic",))
            topics = {"topic": TopicInfo(b"t" * 16, 1)}
            settings = coordinator.settings(group_id)
            assert not group.heartbeat(beat, topics, settings, coordinator.limits, 100.0, coordinator.holds).error

    def _served(self) -> dict[int, Any]:
        return share_group_apis.served(self.services)

    def serves(self, key: int, version: int, **fields: Any) -> bool:
        """True if a request is served here rather than forwarded."""
        route = self._served().get(key)
        if route is None:
            return False
        frame = self.frame(key, version, **fields)
        if route.wants is not None and not route.wants.matcher(key, version)(frame):
            return False
        if route.picks is None:
            return True
        task = Task(route.picks(self._call(key, version, frame)), lambda _: None)
        task.start()
        return bool(task.value)

    def _call(self, key: int, version: int, frame: memoryview) -> Call:
        header, request = frames.decode_request(frame)
        return Call(key, version, header.correlation_id, header.client_id, request, self.client)

    def frame(self, key: int, version: int, **fields: Any) -> memoryview:
        message = registry.message(f"{registry.API_KEYS[key]}Request")(**fields)
        return memoryview(frames.request(key, version, 7, "client", message))[4:]

    def passes(self, key: int, version: int, **fields: Any) -> bool:
        """True if the handler looks at a request and lets it go to the broker."""
        call = self._call(key, version, self.frame(key, version, **fields))
        task = Task(responded(self._served()[key].handler, call), lambda _: None)
        task.start()
        return task.finished and task.error is None and task.value is None

    def call(self, key: int, version: int, **fields: Any) -> Any:
        """Return the decoded response to a request that is served here."""
        reply = self.send(key, version, **fields)
        response = reply.message
        assert frames.decode_response(key, version, memoryview(reply.task.value)[4:])[0] == 7
        return response

    def send(self, key: int, version: int, **fields: Any) -> Reply:
        """A request that is served here, and may take its time."""
        assert self.serves(key, version, **fields)
        call = self._call(key, version, self.frame(key, version, **fields))
        task = Task(responded(self._served()[key].handler, call), lambda _: None)
        task.start()
        return Reply(task, key, version)


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


@pytest.fixture
def journal() -> SlowJournal:
    """Journal of a world that a module makes with it."""
    return SlowJournal()


@pytest.fixture
def topic(world: Any) -> Topic:
    """Topic of a module's world, with ten records."""
    return ten_records(world)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module with AT_OWNER_AND_EDGE is tried twice: by clients of the proxy that owns the group, and by clients of
    another one of its fleet."""
    if getattr(metafunc.module, "AT_OWNER_AND_EDGE", False):
        metafunc.parametrize("where", ["owner", "edge"], indirect=True)


@pytest.fixture(autouse=True)
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Proxy of the clients."""
    place: str = getattr(request, "param", "owner")
    if place == "edge":
        monkeypatch.setattr(request.module, "World", FarWorld)
    return place
