"""Fetch v0-v3 where views are served: a response for each partition, and no cut connection."""

from __future__ import annotations

import struct

import pytest
from kafka_share_proxy.forwarding.apis import k01_old_fetch
from kafka_share_proxy.forwarding.dispatch.routes import Kind
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.wire.errors import RemoteProtocolError


def request(version: int, topics: dict[bytes, list[int]]) -> bytes:
    body = struct.pack(">hhih2siii", 1, version, 7, 2, b"me", -1, 100, 1)
    if version == 3:
        body += struct.pack(">i", 1000)
    body += struct.pack(">i", len(topics))
    for name, partitions in topics.items():
        body += struct.pack(">h", len(name)) + name + struct.pack(">i", len(partitions))
        body += b"".join(struct.pack(">iqi", index, 5, 1000) for index in partitions)
    return body


def response(version: int, frame: bytes) -> Task:
    call = Call(1, version, 7, None, memoryview(frame), None)
    task = Task(k01_old_fetch.handle(call), lambda _: None)
    task.start()
    return task


@pytest.mark.parametrize("version", k01_old_fetch.VERSIONS)
def test_every_partition_is_reported(version):
    """The response has its name and number, in the layout of its version."""
    data = response(version, request(version, {b"__view.r2.t": [0, 3], b"u": [1]})).value
    assert struct.unpack_from(">ii", data) == (len(data) - 4, 7)
    at = 12 if version else 8
    assert struct.unpack_from(">ih11si", data, at) == (2, 11, b"__view.r2.t", 2)
    assert struct.unpack_from(">ihqi", data, at + 21) == (0, 35, -1, 0)
    assert struct.unpack_from(">ihqi", data, at + 39) == (3, 35, -1, 0)
    assert struct.unpack_from(">h1siihqi", data, at + 57) == (1, b"u", 1, 1, 35, -1, 0)
    assert len(data) == at + 57 + 25


@pytest.mark.parametrize("cut", [4, 30, 45, 60])
def test_bytes_that_are_no_request_are_refused(cut):
    """Whichever part is missing, and however many entries are announced."""
    assert isinstance(response(3, request(3, {b"topic": [0, 1, 2]})[:cut]).error, RemoteProtocolError)
    promised = request(3, {})[:-4] + struct.pack(">i", 1 << 30)
    assert isinstance(response(3, promised).error, RemoteProtocolError)


def test_route_reads_nothing_before():
    assert (k01_old_fetch.route(2).kind, k01_old_fetch.route(2).opaque) == (Kind.LOCAL, True)


def test_table_serves_old_versions_only_where_fetch_is_inspected():
    """Else they are refused as any version that is not offered."""
    from kafka_share_proxy.forwarding.dispatch.early_matches import EveryRequest
    from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
    from kafka_share_proxy.forwarding.dispatch.route_table import Served, build
    from kafka_share_proxy.forwarding.dispatch.routes import header
    from kafka_share_proxy.forwarding.limits import Limits
    from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook

    book = AddressBook(9000, "h", lambda *_: True)
    for served, kind in (({}, Kind.REFUSE), ({1: Served(k01_old_fetch.handle, EveryRequest())}, Kind.LOCAL)):
        routes = build(book, EffectiveVersions(Offer()), Limits(), served)
        assert routes[header(1, 2)].kind is kind
        assert routes[header(1, 15)].kind is (Kind.INSPECT if served else Kind.FORWARD)
