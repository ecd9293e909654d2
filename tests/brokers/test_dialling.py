"""Dialling: every address of every target in turn, off the loop, bounded in time."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from kafka_share_proxy.brokers.dialling import Dialled, Dialler, connect, connect_locally
from kafka_share_proxy.loop import first_success
from kafka_share_proxy.loop.listeners import bind_local
from kafka_share_proxy.wire.values import Address


@pytest.fixture
def listening() -> Iterator[Callable[[], Address]]:
    """Opens ports that accept."""
    sockets: list[socket.socket] = []

    def open_port() -> Address:
        sock = socket.create_server(("127.0.0.1", 0))
        sockets.append(sock)
        return Address("127.0.0.1", sock.getsockname()[1])

    yield open_port
    for sock in sockets:
        sock.close()


@pytest.fixture
def refusing() -> Address:
    """Return a port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return Address("127.0.0.1", sock.getsockname()[1])


async def dial(dialler: Dialler, targets: list[Address]) -> Dialled | OSError:
    send, receive = trio.open_memory_channel[Dialled | OSError](1)
    dialler(targets, send.send_nowait)
    with trio.fail_after(10):
        async with send, receive:
            return await receive.receive()


async def test_the_first_target_that_responds_is_used(
    nursery: trio.Nursery, listening: Callable[[], Address], refusing: Address
) -> None:
    good = listening()
    result = await dial(Dialler(nursery, 5.0), [refusing, good, listening()])
    assert isinstance(result, Dialled)
    assert result.address == good
    assert result.sock.getpeername() == tuple(good)
    assert result.sock.gettimeout() == 0.0
    assert result.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    result.sock.close()


async def test_the_target_that_responded_last_is_tried_first_next_time(
    nursery: trio.Nursery, listening: Callable[[], Address], refusing: Address
) -> None:
    dialler, good, other = Dialler(nursery, 5.0), listening(), listening()
    for targets in ([refusing, good], [refusing, good]):
        result = await dial(dialler, targets)
        assert isinstance(result, Dialled)
        result.sock.close()
    assert dialler._last_good_first((refusing, good)) == [good, refusing]
    assert dialler._last_good_first((other, good)) == [other, good]


async def test_when_none_responds_the_error_names_the_last_and_why(nursery: trio.Nursery, refusing: Address) -> None:
    result = await dial(Dialler(nursery, 5.0), [refusing])
    assert isinstance(result, OSError)
    assert str(refusing) in str(result)
    assert "refused" in str(result)


async def test_a_unix_socket_is_dialled_by_its_path(tmp_path: Path) -> None:
    path = str(tmp_path / "links")
    with bind_local(path) as listening, await connect_locally(path) as dialled:
        listening.accept()[0].close()
        assert not dialled.getblocking()


async def test_a_unix_socket_without_a_listener_is_an_error_with_its_path(tmp_path: Path) -> None:
    path = str(tmp_path / "nobody")
    with pytest.raises(OSError, match=f"{path}: No such file"):
        await connect_locally(path)


async def test_no_targets_is_an_error_too(nursery: trio.Nursery) -> None:
    assert "no upstream address" in str(await dial(Dialler(nursery, 5.0), []))


async def test_a_dial_that_is_cancelled_never_calls_back(
    nursery: trio.Nursery, listening: Callable[[], Address]
) -> None:
    results: list[Dialled | OSError] = []
    cancel = Dialler(nursery, 5.0)([listening()], results.append)
    cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert results == []


async def test_a_name_that_does_not_resolve_is_a_clear_error() -> None:
    with pytest.raises(OSError, match=r"no-such-host\.invalid:9092: "):
        await connect(Address("no-such-host.invalid", 9092), 5.0)


async def test_an_address_that_never_responds_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blackhole: the packets go nowhere."""

    async def never(*_args: object, **_options: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(trio._socket._SocketType, "connect", never)
    with pytest.raises(OSError, match=r"127\.0\.0\.1:9: no connection within 0\.05 s"):
        await connect(Address("127.0.0.1", 9), 0.05)


async def test_a_name_with_several_addresses_is_tried_until_one_responds(
    monkeypatch: pytest.MonkeyPatch, listening: Callable[[], Address], refusing: Address
) -> None:
    good = listening()

    async def two(*_args: object, **_options: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", tuple(address)) for address in (refusing, good)]

    monkeypatch.setattr(trio.socket, "getaddrinfo", two)
    sock = await connect(Address("two.test", 9092), 5.0)
    assert sock.getpeername() == tuple(good)
    sock.close()


@pytest.fixture
def blackhole(monkeypatch: pytest.MonkeyPatch) -> Address:
    """An address whose packets go nowhere; others are not waited for long before the next is tried."""
    address = Address("127.0.0.1", 9)
    real = trio._socket._SocketType.connect

    async def connect_unless_black(self: object, to: object) -> None:
        if to == tuple(address):
            await trio.sleep_forever()
        await real(self, to)  # type: ignore[arg-type]

    monkeypatch.setattr(trio._socket._SocketType, "connect", connect_unless_black)
    monkeypatch.setattr(first_success, "STAGGER_S", 0.02)
    return address


async def test_a_target_that_never_responds_delays_no_other(
    nursery: trio.Nursery, blackhole: Address, listening: Callable[[], Address]
) -> None:
    """The first bootstrap server is blackholed: clients must not wait for its time-out."""
    good = listening()
    with trio.fail_after(5):
        result = await dial(Dialler(nursery, 60.0), [blackhole, good])
    assert isinstance(result, Dialled)
    assert result.address == good
    result.sock.close()


async def test_an_address_that_never_responds_does_not_hide_the_others_of_its_name(
    monkeypatch: pytest.MonkeyPatch, blackhole: Address, listening: Callable[[], Address]
) -> None:
    good = listening()

    async def two(*_args: object, **_options: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", tuple(address)) for address in (blackhole, good)]

    monkeypatch.setattr(trio.socket, "getaddrinfo", two)
    with trio.fail_after(5):
        sock = await connect(Address("two.test", 9092), 60.0)
    assert sock.getpeername() == tuple(good)
    sock.close()


async def test_all_reasons_are_reported_when_none_responds(
    nursery: trio.Nursery, blackhole: Address, refusing: Address
) -> None:
    result = await dial(Dialler(nursery, 0.1), [blackhole, refusing])
    assert isinstance(result, OSError)
    assert f"{refusing}: Connection refused" in str(result)
    assert f"{blackhole}: no connection within 0.1 s" in str(result)


async def test_only_one_connection_is_kept_when_several_are_made_in_parallel(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, listening: Callable[[], Address]
) -> None:
    """The others are closed: an unclosed socket is an error here."""
    monkeypatch.setattr(first_success, "STAGGER_S", 0.0)
    targets = [listening() for _ in range(5)]
    for _ in range(10):
        result = await dial(Dialler(nursery, 5.0), targets)
        assert isinstance(result, Dialled)
        assert result.sock.getpeername() == tuple(result.address)
        result.sock.close()
