"""Use of an API's declaration."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.dispatch.early_matches import ContainsAny, EveryRequest
from kafka_share_proxy.forwarding.dispatch.routes import Picks
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Task


async def handle(call: Call, services: str) -> bytes:
    return f"{call.key} {services}".encode()


def call_of(key: int) -> Call:
    connection: Any = None
    return Call(key, 0, 1, None, None, connection)


def ran(coroutine: Any) -> Any:
    task: Task[Any] = Task(coroutine, lambda _: None)
    task.start()
    assert task.error is None
    return task.value


def test_a_handler_gets_what_its_feature_gives() -> None:
    """Bound where it is declared, so that who runs it knows no feature."""
    served = DeclaredApi(key=7, handle=handle).served("services")
    assert ran(served.handler(call_of(7))) == b"7 services"
    assert (served.wants, served.picks) == (None, None)


def test_a_feature_may_run_the_handler_elsewhere() -> None:
    async def elsewhere(_: Call) -> bytes:
        return b"elsewhere"

    served = DeclaredApi(key=7, handle=handle, needs=Needs.OWNER).served("services", elsewhere)
    assert ran(served.handler(call_of(7))) == b"elsewhere"


def test_the_selection_gets_the_services_of_the_feature() -> None:
    """The look, and the choice among decoded requests."""

    def picks(services: str) -> Picks:
        async def is_selected(call: Call) -> bool:
            return str(call.key) in services

        return is_selected

    api = DeclaredApi(
        key=7,
        handle=handle,
        wants=lambda services: ContainsAny((services.encode(),)),
        picks=picks,
    )
    served = api.served("7")
    assert served.wants == ContainsAny((b"7",))
    assert served.picks is not None
    assert ran(served.picks(call_of(7)))
    assert not ran(served.picks(call_of(8)))


def test_a_request_selected_after_decoding_is_always_collected() -> None:
    """An API without an early match is still not served here in every case."""

    async def none(_: Call) -> bool:
        return False

    assert DeclaredApi(key=7, handle=handle, picks=lambda _: none).served("s").wants == EveryRequest()
