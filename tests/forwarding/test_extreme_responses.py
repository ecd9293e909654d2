"""Responses with extreme numbers, error codes among them, that are changed on their way to the client."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.dispatch.routes import Context, Route
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.specs import FieldSpec
from kafka_share_proxy.wire.errors import ErrorCode, UnusableResponse

from tests.wire.samples import Samples

NUMBERS = (-(1 << 15), (1 << 15) - 1, 30_137, -2, -1)
"""Error codes that no release of Kafka has, and the ends of their range."""

OURS = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
"""Said in their place where an address has to be left out."""


def rewritten() -> list[Route]:
    """Return routes whose responses are changed."""
    book = AddressBook(20000, "proxy.example", lambda *_: True)
    routes = route_table.build(book, EffectiveVersions(Offer()), Limits(), {})
    return [route for route in routes.values() if route.rewrite is not None]


ROUTES = rewritten()


def with_codes(number: int) -> Any:
    """Every error code of a sample is this number."""

    def restrict(field: FieldSpec, _hint: Any, value: Any) -> Any:
        return number if field.attribute == "error_code" else value

    return restrict


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{ApiKey(route.key).name} v{route.version}")
def test_an_unknown_code_reaches_the_client(route: Route, number: int) -> None:
    """Or the whole response is withheld because none of its brokers has an address here: nothing else is raised."""
    spec = registry.response_spec(route.key)
    shown = 0
    for seed in range(20):
        message = Samples((route.key, route.version, number, seed), with_codes(number)).message(spec, route.version)
        frame = memoryview(frames.response(route.key, route.version, 7, message))[4:]
        try:
            changed = route.rewrite(frame, Context(1))  # type: ignore[misc]  # only those that have one are here
        except UnusableResponse:
            continue
        shown += 1
        response = frame if changed is None else memoryview(changed)[4:]
        correlation_id, decoded = frames.decode_response(route.key, route.version, response)
        assert correlation_id == 7
        assert getattr(decoded, "error_code", None) in (getattr(message, "error_code", None), *OURS)
    assert shown
