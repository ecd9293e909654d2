"""The address book, and the cache of rewritten responses."""

import pytest
from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata
from kafka_share_proxy.forwarding.dispatch.routes import Context
from kafka_share_proxy.forwarding.rewriting import address_book
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook, ResponseCache, node_endpoints, placed
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.endpoints import Endpoint
from kafka_share_proxy.wire.values import Address

KAFKA_1, MOVED = Address("kafka-1", 9092), Address("kafka-1b", 9092)


class Plane:
    """Binds listeners; ports of `blocked_nodes` cannot be had."""

    def __init__(self) -> None:
        self.blocked_nodes: set[int] = set()
        self.bound: list[tuple[int, Address]] = []

    def bind(self, node_id: int, upstream: Address) -> bool:
        if node_id in self.blocked_nodes:
            return False
        self.bound.append((node_id, upstream))
        return True


@pytest.fixture
def plane():
    return Plane()


@pytest.fixture
def book(plane):
    return AddressBook(19093, "proxy.example", plane.bind)


def test_a_broker_is_known_by_its_node_id_and_bound_once(book, plane):
    assert book.advertise(3, KAFKA_1) == Address("proxy.example", 19096)
    assert book.advertise(3, KAFKA_1) == Address("proxy.example", 19096)
    assert plane.bound == [(3, KAFKA_1)]
    assert book.upstream_of(3) == KAFKA_1
    assert book.ours_of(3) == Address("proxy.example", 19096)
    assert dict(book.nodes) == {3: KAFKA_1}


def test_a_broker_that_moved_is_reported_to_the_plane(book, plane):
    book.advertise(3, KAFKA_1)
    before = book.generation
    assert book.advertise(3, MOVED) == Address("proxy.example", 19096)
    assert plane.bound == [(3, KAFKA_1), (3, MOVED)]
    assert book.upstream_of(3) == MOVED
    assert book.generation > before


def test_brokers_in_a_response_have_our_addresses_and_each_is_listed_once(book, plane):
    """An unknown one, or one whose listener cannot be bound, is omitted."""
    metadata = registry.message("MetadataResponse")
    rewritten = [
        metadata.MetadataResponseBroker(node_id=n, host=f"kafka-{n}", port=9092, rack=f"r{n}") for n in (1, 2, 3)
    ]
    topology = ClusterMetadata()
    topology.fold(metadata(brokers=rewritten, topics=[]), 0.0)
    plane.blocked_nodes.add(2)
    endpoints = node_endpoints(book, topology, registry.message("ShareFetchResponse").NodeEndpoint, [3, 1, 3, 2, 9])
    assert [(each.node_id, each.host, each.port, each.rack) for each in endpoints] == [
        (1, "proxy.example", 19094, "r1"),
        (3, "proxy.example", 19096, "r3"),
    ]


def test_a_broker_without_listener_is_left_out_until_it_is_tried_again(book, plane):
    plane.blocked_nodes.add(1)
    assert book.advertise(1, KAFKA_1) is None
    plane.blocked_nodes.clear()
    assert book.advertise(1, KAFKA_1) is None, "not with every answer"
    assert dict(book.unbound) == {1: KAFKA_1}
    assert book.upstream_of(1) is None
    before = book.generation
    book.retry_unbound()
    assert book.generation > before, "answers rewritten without the broker are forgotten"
    assert book.advertise(1, KAFKA_1) is not None
    assert not book.unbound
    before = book.generation
    book.retry_unbound()
    assert book.generation == before


def test_a_broker_whose_new_address_cannot_be_served_is_no_longer_advertised(book, plane):
    book.advertise(1, KAFKA_1)
    plane.blocked_nodes.add(1)
    assert book.advertise(1, MOVED) is None
    assert book.ours_of(1) is None
    assert not book.nodes


@pytest.mark.parametrize("node_id", [-1, 65536 - 19093, 2**31 - 1])
def test_what_is_no_port_is_never_requested_of_the_plane(book, plane, node_id):
    assert book.advertise(node_id, KAFKA_1) is None
    assert book.address_for(node_id) is None
    assert plane.bound == []


def test_the_highest_port_is_one(book):
    assert book.advertise(65535 - 19093, KAFKA_1) == Address("proxy.example", 65535)


def test_a_forgotten_broker_is_bound_anew(book, plane):
    book.advertise(3, KAFKA_1)
    before = book.generation
    book.forget(3)
    book.forget(4)
    assert book.generation == before + 1
    assert book.upstream_of(3) is None
    assert book.advertise(3, KAFKA_1) is not None
    assert len(plane.bound) == 2


def test_brokers_without_listener_are_remembered_up_to_a_limit(plane, monkeypatch):
    monkeypatch.setattr(address_book, "UNBOUND_MAX", 3)
    book = AddressBook(19093, "h", lambda *_: False)
    for node_id in range(10):
        assert book.advertise(node_id, KAFKA_1) is None
    assert len(book.unbound) == 3


def test_an_empty_host_is_no_address_and_one_missing_broker_is_enough(book, plane):
    some, none = Endpoint(1, 0, 4, "kafka-1", 9092), Endpoint(-1, 4, 8, "", -1)
    assert placed([some, none], book) == [(some, Address("proxy.example", 19094))]
    plane.blocked_nodes.add(2)
    assert placed([some, Endpoint(2, 8, 12, "kafka-2", 9092)], book) is None
    assert placed([Endpoint(-1, 0, 4, "kafka-x", 1)], book) is None, "an address of nobody does not pass"


def test_with_one_port_a_broker_is_advertised_by_its_name(plane):
    book = AddressBook(443, "broker-{id}.kafka.example", plane.bind, is_one_port=True)
    assert book.advertise(70_000, KAFKA_1) == Address("broker-70000.kafka.example", 443)
    assert plane.bound == [(70_000, KAFKA_1)]


def test_a_pinned_broker_is_dialled_at_the_address_of_the_settings(plane):
    """Regardless of its advertised address: the proxy's host may know it by another name."""
    book = AddressBook(19093, "proxy.example", plane.bind, pinned={3: MOVED})
    for advertised in (KAFKA_1, MOVED, KAFKA_1):
        assert book.advertise(3, advertised) == Address("proxy.example", 19096)
    assert plane.bound == [(3, MOVED)]
    assert book.upstream_of(3) == MOVED
    book.advertise(4, KAFKA_1)
    assert book.upstream_of(4) == KAFKA_1


class Rewriter:
    """Rewriter that appends a word to every response, or changes nothing; counts its calls."""

    def __init__(self, word: bytes | None = b"!") -> None:
        self.word = word
        self.requested = 0

    def __call__(self, frame: memoryview, _: Context) -> bytes | None:
        self.requested += 1
        if self.word is None:
            return None
        return (len(frame) + len(self.word)).to_bytes(4, "big") + bytes(frame) + self.word


def response(correlation_id: int, rest: bytes) -> memoryview:
    return memoryview(correlation_id.to_bytes(4, "big") + rest)


CONTEXT = Context(node_id=1)


def test_a_repeated_response_is_rewritten_once_with_each_correlation_id(book):
    rewriter = Rewriter()
    through = ResponseCache(book).through(rewriter)
    rewritten = [through(response(n, b"brokers"), CONTEXT) for n in (1, 2, 3)]
    assert rewritten == [b"\0\0\0\x0c" + n.to_bytes(4, "big") + b"brokers!" for n in (1, 2, 3)]
    assert rewriter.requested == 1


def test_that_nothing_changes_is_remembered_too(book):
    rewriter = Rewriter(None)
    through = ResponseCache(book).through(rewriter)
    assert [through(response(n, b"no coordinator"), CONTEXT) for n in (1, 2)] == [None, None]
    assert rewriter.requested == 1


def test_rewriters_are_kept_apart(book):
    cache = ResponseCache(book)
    routes = [cache.through(Rewriter(word)) for word in (b"1", b"2", b"3")]
    for _ in range(2):
        assert [route(response(1, b"x"), CONTEXT)[-1:] for route in routes] == [b"1", b"2", b"3"]


def test_everything_is_forgotten_when_the_book_changes(book):
    cache, rewriter = ResponseCache(book), Rewriter()
    through = cache.through(rewriter)
    through(response(1, b"x"), CONTEXT)
    book.advertise(3, KAFKA_1)
    rewriter.word = b"?"
    assert through(response(1, b"x"), CONTEXT)[-1:] == b"?"
    assert len(cache) == 1


def test_a_response_that_made_a_broker_known_is_kept(book):
    """Binding a listener changes the book while the response is being rewritten: the result is the newest."""
    cache = ResponseCache(book)
    requested = []

    def rewrite(frame: memoryview, _: Context) -> bytes:
        requested.append(book.advertise(3, KAFKA_1))
        return b"\0\0\0\4" + bytes(frame[:4])

    through = cache.through(rewrite)
    through(response(1, b"x"), CONTEXT)
    through(response(2, b"x"), CONTEXT)
    assert len(requested) == 1


def test_those_kept_longest_go_first_and_the_count_holds(book):
    cache, rewriter = ResponseCache(book, responses_max=2), Rewriter()
    through = cache.through(rewriter)
    for rest in (b"a", b"b", b"a", b"c", b"b"):
        through(response(1, rest), CONTEXT)
    assert (len(cache), rewriter.requested) == (2, 3)
    through(response(1, b"a"), CONTEXT)
    assert rewriter.requested == 4


def test_the_bytes_are_bounded_and_counted(book, monkeypatch):
    cache, rewriter = ResponseCache(book, bytes_max=1000), Rewriter()
    through = cache.through(rewriter)
    for n in range(50):
        through(response(1, n.to_bytes(100, "big")), CONTEXT)
        assert cache._bytes <= 1000
    assert len(cache) == 4
    monkeypatch.setattr(address_book, "RESPONSE_BYTES_MAX", 500)
    through(response(1, bytes(600)), CONTEXT)
    assert len(cache) == 4, "a large answer does not drive out small ones"
    book.advertise(3, KAFKA_1)
    through(response(1, b""), CONTEXT)
    assert cache._bytes == 1
