"""Requests that are forwarded without being gathered."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.forwarding.dispatch import passing_requests
from kafka_share_proxy.forwarding.dispatch.request_inspection import AcksMatch
from kafka_share_proxy.forwarding.dispatch.routes import Routes, header
from kafka_share_proxy.loop.iterations import Iterations

from tests.forwarding.plane_world import API_VERSIONS, FETCH, LIST, LOCAL, METADATA, PRODUCE, request, some_routes


async def _handler(_call: object) -> None: ...


def routes() -> Routes:
    return some_routes(local=_handler, inspect=_handler, serve_here=lambda frame: bytes(frame[-1:]) == b"!")


class PassingArguments:
    """What `Passing` is made of."""

    def __init__(self, plain: Any, inspected: Any, produce: Any) -> None:
        self.plain, self.inspected, self.produce = plain, inspected, produce


@pytest.fixture
def iterations() -> Iterations:
    return Iterations()


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, iterations: Iterations) -> Any:
    monkeypatch.setattr(passing_requests, "Passing", PassingArguments)
    both = passing_requests.passing(routes(), iterations)
    return both.first


def test_requests_that_are_only_forwarded_are_not_inspected(arguments: Any) -> None:
    """ApiVersions is read until the client has named its software."""
    assert {header(FETCH, 15), header(METADATA, 12)} <= set(arguments.plain)
    assert not {header(key, 0) for key in (API_VERSIONS, LOCAL, LIST)} & set(arguments.plain)
    assert not {header(key, 0) for key in (API_VERSIONS, LOCAL, FETCH)} & set(arguments.inspected)


def test_api_versions_of_a_client_that_has_described_itself_passes(
    monkeypatch: pytest.MonkeyPatch, iterations: Iterations
) -> None:
    monkeypatch.setattr(passing_requests, "Passing", PassingArguments)
    both: Any = passing_requests.passing(routes(), iterations)
    assert both.described.plain.keys() - both.first.plain.keys() == {header(API_VERSIONS, v) for v in range(5)}
    assert both.described.inspected == both.first.inspected


def test_of_a_produce_only_the_acks_are_inspected(arguments: Any) -> None:
    assert isinstance(arguments.inspected[header(PRODUCE, 7)], AcksMatch)
    assert header(PRODUCE, 7) in arguments.produce


@pytest.mark.parametrize(("body", "passes"), [(b"for the broker", True), (b"for the proxy!", False)])
def test_an_inspected_request_names_what_the_loop_is_doing(
    arguments: Any, iterations: Iterations, body: bytes, passes: bool
) -> None:
    """A long iteration is logged with it."""
    frame = memoryview(request(LIST, 0, 1, body))
    expected = arguments.inspected[header(LIST, 0)](frame, 0, len(frame), len(frame))
    assert (expected is not None) is passes
    assert iterations.doing is not None
    assert iterations.doing[1].key == LIST
