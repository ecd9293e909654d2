"""Requests of a worker to its supervisor."""

import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
import trio
from kafka_share_proxy.app.settings import passed_settings
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.workers import channel, seat
from kafka_share_proxy.app.workers.channel import Body
from kafka_share_proxy.app.workers.places import Places
from kafka_share_proxy.app.workers.seat import SupervisorLink

CONFIG = Config.model_validate({"listen": "127.0.0.1:9092", "workers": 2})
LIMIT_S = 10.0
Respond = Callable[[Body], tuple[Body, list[socket.socket]]]


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = channel.pair()
    ours.settimeout(LIMIT_S)
    yield ours, theirs
    ours.close()
    theirs.close()


def responding(end: socket.socket, respond: Respond) -> None:
    """Respond to one request, in a thread."""

    def run() -> None:
        received = channel.receive(end)
        assert received is not None
        channel.send(end, *respond(received[0]))

    threading.Thread(target=run, daemon=True).start()


def test_a_worker_gets_listening_sockets(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    with socket.create_server(("127.0.0.1", 0)) as listening:
        requested: list[Body] = []
        responding(ours, lambda request: (requested.append(request) or {}, [listening]))
        (passed,) = SupervisorLink(theirs).listen("127.0.0.1", 9092, place=3)
        with passed:
            assert passed.getsockname() == listening.getsockname()
            assert not passed.getblocking()
        assert requested == [{"listen": ["127.0.0.1", 9092, 3]}]


def test_a_refused_port_is_an_error_with_its_reason(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    responding(ours, lambda _: ({"errno": 98, "error": "cannot listen on h:1: in use"}, []))
    with pytest.raises(OSError, match="cannot listen on h:1") as refused:
        SupervisorLink(theirs).listen("h", 1)
    assert refused.value.errno == 98


def test_a_worker_gets_its_settings(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    responding(ours, lambda _: ({"settings": passed_settings.encode(CONFIG)}, []))
    assert SupervisorLink(theirs).settings() == CONFIG


def test_a_worker_gets_its_seat(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    places = Places()
    responding(ours, lambda _: (places.seat(CONFIG, 1), []))
    assigned = SupervisorLink(theirs).seat()
    places.remove()
    assert (assigned.number, assigned.name, assigned.peer_listen) == (1, "127.0.0.1:9092/1", None)
    assert assigned.paths[assigned.name] == assigned.links
    assert len(assigned.secret or b"") == 32


def test_a_supervisor_that_has_ended_is_an_error(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    ours.close()
    with pytest.raises(OSError, match=r"ended|Broken pipe"):
        SupervisorLink(theirs).report_ready()


async def test_the_end_of_the_supervisor_is_noticed_but_not_its_responses(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    supervisor = SupervisorLink(theirs)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.ended)
            for _ in range(5):
                responding(ours, lambda _: ({}, []))
                await trio.to_thread.run_sync(supervisor.report_ready)
            assert nursery.child_tasks, "responses are no end"
            ours.close()


def test_only_a_process_that_a_supervisor_started_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(seat.DESCRIPTOR, raising=False)
    assert seat.supervisor() is None


def test_the_descriptor_is_not_passed_on(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(seat.DESCRIPTOR, str(os.dup(ends[1].fileno())))
    supervisor = seat.supervisor()
    assert supervisor is not None
    supervisor.end.close()
    assert seat.DESCRIPTOR not in os.environ
