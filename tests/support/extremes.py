"""Requests with extreme values, made from the message definitions, against every local handler.

    python -m tests.support.extremes [--seeds 1000] [--first 0] [--requests 60]

Each seed makes two small worlds with state in them (groups with members, sessions and locks, share partitions that
rest, views that are read and written), and gives them requests of every API that is served: the least and the largest
integers, -1, nulls, empty and long strings and arrays, ids that exist and ids that do not. Their broker responds to
each request with its entries, and with codes of all kinds. Every request must get a response that decodes, or be
forwarded; requests that wait for records continue waiting. A failure names its seed.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

from kafka_share_proxy.forwarding.dispatch import chain
from kafka_share_proxy.forwarding.dispatch.declared_api import Served
from kafka_share_proxy.forwarding.dispatch.offered_versions import CAPS
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import framed
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.views import view_apis
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.specs import FieldSpec, StructSpec

from tests.support import view_broker
from tests.support.scripted_cluster import Connection
from tests.support.view_ports import ViewWorld
from tests.wire.samples import Samples, present

REQUESTS = 60
"""Number of requests of one seed."""
WAITING = frozenset({1, 78})
"""Fetch and ShareFetch wait up to their MaxWaitMs."""
GIVE_UP_S = 60.0

GROUPS = ("g", "resting", "nobody's", "", "x" * 300)
TOPICS = ("t", "__view.r2.t", "u", "missing", "", "__view.s4.t", "__view.r0.t", "__view.r4294967296.t", "__view.p.t")
MEMBERS = ("m1", "m2", "", "x" * 40)
NAMES = ("share.record.lock.duration.ms", "share.isolation.level", "listeners", "")
LIKELY = 0.7
"""How often one of the first two of a pool is taken: they exist."""
CODES = (0, 0, 0, 0, -1, 3, 14, 15, 16, 25, 29, 30, 31, 42, 69, 30_137)
"""Codes among which the broker chooses."""


class Requests:
    """Draws requests whose ids often exist."""

    def __init__(self, seed: object, topic_ids: Callable[[], list[bytes]]) -> None:
        self._random = random.Random(str(seed))
        self._topic_ids = topic_ids
        self._samples = Samples(seed, self._restrict)

    def draw(self, key: int) -> tuple[int, Any]:
        """Draw a request of this API. Return its version and the request."""
        first, last = registry.versions(key)
        version = self._random.randint(first, min(last, CAPS.get(key, last)))
        return version, self._samples.message(registry.request_spec(key), version)

    def _restrict(self, field: FieldSpec, _hint: Any, value: Any) -> Any:
        if self._random.random() < 0.25:
            return value
        if field.type == "uuid":
            return self._random.choice(self._topic_ids())
        if field.type == "string":
            pool = _pool(field)
            return self._random.choice(pool[:2] if self._random.random() < LIKELY else pool)
        if field.attribute == "resource_type":
            return self._random.choice((2, 4, 32))
        if field.type.startswith("int"):
            return self._random.choice((value, 0, 1, -1, 2))
        return value


def _pool(field: FieldSpec) -> tuple[str, ...]:
    name = field.attribute
    if "group" in name:
        return GROUPS
    if "member" in name or "instance" in name:
        return MEMBERS
    if "topic" in name or field.entity == "topicName":
        return TOPICS
    return GROUPS + TOPICS + NAMES


class Mirror:
    """A broker that returns every entry of the request, with some code."""

    def __init__(self, seed: object) -> None:
        self._random = random.Random(f"mirror {seed}")

    def respond(self, key: int, version: int, request: Any) -> Any:
        self._version = version
        return self._struct(
            registry.response_spec(key).root, registry.message(f"{registry.API_KEYS[key]}Response"), request
        )

    def _struct(
        self, struct: StructSpec, message_class: type[Any], request: Any, outer: type[Any] | None = None
    ) -> Any:
        outer = outer or message_class
        values: dict[str, Any] = {}
        for field in present(struct, self._version):
            if field.is_array and field.struct is not None:
                nested, entries = getattr(outer, field.struct.name), _entries(request)
                values[field.attribute] = [self._struct(field.struct, nested, each, outer) for each in entries]
            elif field.attribute == "error_code":
                values[field.attribute] = self._random.choice(CODES)
            elif not field.is_array and field.struct is None:
                copied = (
                    request
                    if isinstance(request, str) and field.type == "string"
                    else getattr(request, field.attribute, None)
                )
                if copied is not None and isinstance(copied, type(field.default if field.type != "uuid" else b"")):
                    values[field.attribute] = copied
        return message_class(**values)


def _entries(request: Any) -> list[Any]:
    """The entries of the first list in a request, or in a part of it."""
    fields = getattr(type(request), "FIELDS", ())
    lists = (value for name in fields if isinstance(value := getattr(request, name), list))
    return next((value for value in lists if value), [])


class Shares:
    """Share groups and what is read of views, in front of the scripted cluster."""

    def __init__(self, seed: object) -> None:
        self.world = world = ViewWorld()
        self._mirror = Mirror(seed)
        world.cluster.respond_unscripted = self._mirror.respond
        topics = [world.topic(name, (1, 2)) for name in ("t", "u")]
        for topic in topics:
            world.produce(topic, [b"a", b"b", None])
        self._ids = [*(topic.topic_id for topic in topics), world.view("__view.r2.t"), world.view("__view.s4.t")]
        world.configure("g", share_auto_offset_reset="earliest")
        self.members = [world.member(member_id=name) for name in MEMBERS[:2]]
        for member in self.members:
            member.heartbeat(0, ["t", "u"])
            member.fetch(*topics, wait_ms=0, max_records=1)
        coordinator = world.services.coordinator
        coordinator.add_group("resting")
        for topic in topics:
            coordinator.rest(
                ShareKey("resting", topic.topic_id, 0),
                coordinator.new_partition(ShareKey("resting", topic.topic_id, 0), 1).snapshot().encode(),
            )
        views = {key: served for key, served in view_apis.served(world.views).items() if key in OF_VIEWS}
        self.served = chain.in_order((views, share_group_apis.served(world.services)))

    def topic_ids(self) -> list[bytes]:
        return [*self._ids, bytes(16), b"\xff" * 16]

    def connection(self, chosen: random.Random) -> Connection:
        """Return the connection of a member, or a new one."""
        open_ones = [member.connection for member in self.members if member.connection.open]
        return chosen.choice([*open_ones, self.world.connect(chosen.choice((1, 2, -1)))])

    def wait(self, task: Task[Any]) -> None:
        if not task.finished:
            self.world.timers.advance(GIVE_UP_S)


OF_VIEWS = frozenset({1, 2, 23, 76, 78, 91})


class Topics:
    """Other services of views, with a cluster whose topics are created and deleted."""

    def __init__(self, seed: object) -> None:
        self.world = view_broker.World()
        self._mirror = Mirror(seed)
        known, mirror = self.world.cluster, self._mirror
        response = known.respond
        known.respond = lambda key, version, request: (  # type: ignore[method-assign]  # one more broker
            response(key, version, request)
            if hasattr(known, f"_{registry.API_KEYS[key]}")
            else mirror.respond(key, version, request)
        )
        for name in ("t", "u"):
            known.make(name, 2)
        self.world.ensure("__view.r2.t", "__view.s4.t")
        self.served: dict[int, Served] = self.world.served

    def topic_ids(self) -> list[bytes]:
        return [*(topic.topic_id for topic in self.world.cluster.topics.values()), bytes(16), b"\xff" * 16]

    def connection(self, _: random.Random) -> view_broker.Client:
        return self.world.client

    def wait(self, task: Task[Any]) -> None:
        for _ in range(1000):
            if not task.finished:
                self.world.timers.ring()


def run(seed: object, requests: int = REQUESTS) -> Counter[str]:
    """Send this many requests to both worlds. Return the number of served requests by API. Raises what a handler
    raises.
    """
    responded: Counter[str] = Counter()
    for place in (Shares(seed), Topics(seed)):
        drawn = Requests(f"{seed} {type(place).__name__}", place.topic_ids)
        chosen, numbers = random.Random(str(seed)), count(1)
        keys = sorted(place.served)
        for _ in range(requests):
            key = chosen.choice(keys)
            version, request = drawn.draw(key)
            try:
                responded[registry.API_KEYS[key]] += _responded(place, key, version, request, next(numbers), chosen)
            except Exception as error:
                error.add_note(f"{request}, version {version}, of seed {seed}")
                raise
    return responded


def _responded(
    place: Shares | Topics, key: int, version: int, request: Any, number: int, chosen: random.Random
) -> bool:
    """True if the request was served here."""
    served = place.served[key]
    frame = memoryview(frames.request(key, version, number, "client", request))[4:]
    if served.wants is not None and not served.wants.matcher(key, version)(frame):
        return False
    header, decoded = frames.decode_request(frame)
    connection: Any = place.connection(chosen)
    call = Call(key, version, header.correlation_id, header.client_id, decoded, connection)
    owner = connection if isinstance(connection, Connection) else None
    task: Task[Any] = Task(_served(served, call), lambda _: None, owner)
    if isinstance(connection, Connection):
        connection.tasks.append(task)
    task.start()
    place.wait(task)
    if not task.finished:
        assert key in WAITING, "no answer"
        connection.close()
        return True
    if task.error is not None:
        raise task.error
    if not task.value:
        return False
    correlation_id, _ = frames.decode_response(key, version, memoryview(bytes(task.value))[4:])
    assert correlation_id == number
    return True


async def _served(served: Served, call: Call[Any]) -> Any:
    if served.picks is not None and not await served.picks(call):
        return None
    return await framed(call, await served.handler(call))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--requests", type=int, default=REQUESTS, help="of one seed, in each of two worlds")
    options = parser.parse_args()
    began, responded = time.monotonic(), Counter[str]()
    for seed in range(options.first, options.first + options.seeds):
        responded += run(seed, options.requests)
    print(f"{sum(responded.values()):,} requests answered, {time.monotonic() - began:.0f} s, nothing broken")
    for api, number in sorted(responded.items()):
        print(f"{number:9,} {api}")


if __name__ == "__main__":
    main()
