"""A supervisor over small programs in place of workers. tests/stock/test_workers.py has real ones."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import trio
from kafka_share_proxy.app.observing.admin_listener import JSON, Response
from kafka_share_proxy.app.observing.observe import LogNotes
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.workers import fork_server, removing_page, supervisor, worker_client, worker_process
from kafka_share_proxy.app.workers.places import Places
from kafka_share_proxy.app.workers.supervisor import ENDED, STATE_PAGE, Supervisor
from kafka_share_proxy.durable.state_home import LINKED_FIELD, LOADING_FIELD
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.localkafka.addresses import HOST, free_ports

WORKER = """
import signal, sys, time
from kafka_share_proxy.app.workers import forks, seat
supervisor = seat.supervisor()
if supervisor is None:
    end = forks.next_worker(forks.requests())
    if end is None:
        sys.exit(0)
    supervisor = seat.SupervisorLink(end)
config = supervisor.settings()
if config.log_level == "error":
    sys.exit(7)
(listening,) = supervisor.listen("127.0.0.1", config.bound.port)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(config.drain_s == 1))
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
supervisor.report_ready()
listening.setblocking(True)
while True:
    client, _ = listening.accept()
    client.sendall(f"{supervisor.seat().number} {config.unknown_apis}".encode())
    client.close()
"""
"""Responds with its number and a setting. It does not start with log_level error."""
LIMIT_S = 60.0


class Proxy:
    """A supervisor, its settings and its log."""

    def __init__(self, places: Places) -> None:
        (self.port,) = free_ports(1)
        self.written: dict[str, Any] = {"listen": f"{HOST}:{self.port}", "workers": 2, "drain_s": 2}
        self.lines: list[str] = []
        notes = LogNotes(lambda _level, event, _context: self.lines.append(event))
        self.supervisor = Supervisor(self.config(), self.config, notes, places)
        self.status: int | None = None

    def config(self) -> Config:
        if self.written.get("workers") == 0:
            raise ConfigError("workers: must be 1 or more")
        return Config.model_validate(self.written)

    async def main(self) -> None:
        self.status = await self.supervisor.main()

    def responses(self, count: int = 20) -> set[str]:
        """Responses to several connections."""
        return {self.response() for _ in range(count)}

    def response(self) -> str:
        with socket.create_connection((HOST, self.port), timeout=10) as client:
            return client.recv(100).decode()

    async def logged(self, event: str) -> None:
        while event not in self.lines:  # noqa: ASYNC110  # what is waited for are processes
            await trio.sleep(0.01)


@pytest.fixture
def places() -> Iterator[Places]:
    worker_places = Places()
    yield worker_places
    worker_places.remove()


@pytest.fixture
def proxy(places: Places, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    monkeypatch.setattr(worker_process, "COMMAND", (sys.executable, "-c", WORKER))
    return Proxy(places)


@asynccontextmanager
async def serving(proxy: Proxy) -> AsyncIterator[None]:
    """Run it until the end of the block, and then to its end."""
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(proxy.main)
            await proxy.logged("serving")
            yield
            signal.raise_signal(signal.SIGTERM)


async def in_thread(call: Callable[[], Any]) -> Any:
    return await trio.to_thread.run_sync(call)


async def test_workers_share_the_port_and_end_with_the_proxy(proxy: Proxy) -> None:
    async with serving(proxy):
        assert await in_thread(proxy.responses) == {"0 hide", "1 hide"}
    assert proxy.status == ENDED
    with pytest.raises(ConnectionRefusedError):
        proxy.response()


async def test_a_killed_worker_is_replaced_and_its_clients_wait_for_it(proxy: Proxy) -> None:
    async with serving(proxy):
        workers = list(proxy.supervisor._running.values())
        os.kill(workers[0].pid or 0, signal.SIGKILL)
        # A connection that the worker had accepted ends without a response.
        assert await in_thread(proxy.responses) - {""} == {"0 hide", "1 hide"}
        assert "worker-ended" in proxy.lines
    assert proxy.status == ENDED


async def test_another_worker_removes_one_that_was_killed_and_its_replacement_succeeds_it(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replacement owns nothing at first, because the others have just taken over what the killed one owned."""
    requests, was_removed = [], trio.Event()

    async def request(path: str, method: str, target: str) -> Response:
        if target.startswith(f"/{removing_page.PATH}/"):
            requests.append((Path(path).name, method, target))
            was_removed.set()
        return Response(HTTPStatus.OK, b"{}", JSON)

    async with serving(proxy):
        monkeypatch.setattr(worker_client, "request", request)
        seat = {"seat": True}
        before = proxy.supervisor._running[0]
        assert before.reply(seat)[0]["is_successor"] is False
        os.kill(before.pid or 0, signal.SIGKILL)
        await was_removed.wait()
        while proxy.supervisor._running.get(0) in (None, before):  # noqa: ASYNC110  # of processes
            await trio.sleep(0.01)
        await proxy.supervisor._running[0].ready.wait()
        assert requests == [("admin-1", "POST", f"/{removing_page.PATH}/0")]
        assert proxy.supervisor._running[0].reply(seat)[0]["is_successor"] is True
    assert len(requests) == 1, "workers that end in order leave the group themselves"


async def test_a_worker_that_cannot_start_ends_the_proxy_with_its_status(proxy: Proxy, places: Places) -> None:
    proxy.written["log_level"] = "error"
    proxy.supervisor = Supervisor(proxy.config(), proxy.config, proxy.supervisor._notes, places)
    with trio.fail_after(LIMIT_S):
        await proxy.main()
    assert proxy.status == 7


async def test_new_settings_are_applied_by_new_workers_with_other_numbers(proxy: Proxy) -> None:
    async with serving(proxy):
        proxy.written["unknown_apis"] = "pass"
        reloaded = await proxy.supervisor.reload("test")
        assert reloaded.changed == ("unknown_apis",)
        while any(number in proxy.supervisor._running for number in (0, 1)):  # noqa: ASYNC110  # of processes
            await trio.sleep(0.01)
        assert await in_thread(proxy.responses) == {"2 pass", "3 pass"}
    assert proxy.status == ENDED


async def test_new_workers_that_cannot_start_change_nothing(proxy: Proxy) -> None:
    async with serving(proxy):
        proxy.written |= {"unknown_apis": "pass", "log_level": "error"}
        with pytest.raises(ConfigError, match=r"ended with status 7; .* the workers before it continue"):
            await proxy.supervisor.reload("test")
        assert await in_thread(proxy.responses) == {"0 hide", "1 hide"}
        assert "workers-not-replaced" in proxy.lines


async def test_a_mistake_changes_nothing(proxy: Proxy) -> None:
    async with serving(proxy):
        proxy.written["workers"] = 0
        with pytest.raises(ConfigError, match="must be 1 or more"):
            await proxy.supervisor.reload("test")
        assert await in_thread(proxy.responses) == {"0 hide", "1 hide"}


async def test_settings_of_the_supervisor_itself_need_a_restart(proxy: Proxy) -> None:
    async with serving(proxy):
        proxy.written["admin"] = f"{HOST}:{free_ports(1)[0]}"
        reloaded = await proxy.supervisor.reload("test")
        assert (reloaded.changed, reloaded.needs_restart) == ((), ("admin",))


async def test_more_workers_can_be_set_while_it_runs(proxy: Proxy) -> None:
    async with serving(proxy):
        proxy.written["workers"] = 3
        await proxy.supervisor.reload("test")
        while any(number in proxy.supervisor._running for number in (0, 1)):  # noqa: ASYNC110  # of processes
            await trio.sleep(0.01)
        assert await in_thread(lambda: proxy.responses(40)) == {"2 hide", "3 hide", "4 hide"}


async def test_a_port_that_is_taken_is_an_error_before_any_worker_starts(proxy: Proxy) -> None:
    with socket.create_server((HOST, proxy.port)), pytest.raises(OSError, match="cannot listen"):
        await proxy.main()
    assert proxy.supervisor._running == {}


async def test_sighup_reloads(proxy: Proxy) -> None:
    async with serving(proxy):
        proxy.written["unknown_apis"] = "pass"
        signal.raise_signal(signal.SIGHUP)
        await proxy.logged("reloaded")
    assert proxy.status == ENDED


async def test_an_upgrade_replaces_all_workers_and_the_process_that_forks_them(proxy: Proxy) -> None:
    async with serving(proxy):
        before = proxy.supervisor._forks
        assert before is not None
        signal.raise_signal(signal.SIGUSR2)
        await proxy.logged("workers-replaced")
        await before.ended.wait()
        while any(number in proxy.supervisor._running for number in (0, 1)):  # noqa: ASYNC110  # of processes
            await trio.sleep(0.01)
        assert await in_thread(proxy.responses) == {"2 hide", "3 hide"}
        assert proxy.supervisor._forks not in (before, None)
    assert proxy.status == ENDED


async def test_workers_continue_without_the_process_that_forked_them_and_another_replaces_it(proxy: Proxy) -> None:
    async with serving(proxy):
        before = proxy.supervisor._forks
        assert before is not None
        before.kill()
        await before.ended.wait()
        assert await in_thread(proxy.responses) == {"0 hide", "1 hide"}
        os.kill(proxy.supervisor._running[0].pid or 0, signal.SIGKILL)
        await proxy.logged("worker-ended")
        assert await in_thread(proxy.responses) - {""} == {"0 hide", "1 hide"}
    assert proxy.status == ENDED


async def test_workers_load_the_program_themselves_where_the_system_has_no_subreapers(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server.sys, "platform", "darwin")
    async with serving(proxy):
        assert proxy.supervisor._forks is None
        os.kill(proxy.supervisor._running[0].pid or 0, signal.SIGKILL)
        assert await in_thread(proxy.responses) - {""} == {"0 hide", "1 hide"}
    assert proxy.status == ENDED


async def test_workers_are_replaced_once_they_serve_the_state_that_they_own(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise clients of that state would wait for two changes."""
    loading, requests = [True, True, False], []

    async def request_all(running: Mapping[int, Any], method: str, target: str) -> dict[int, Response]:
        requests.append((method, target))
        if not loading:
            return {}
        assert running.keys() == {0, 1}, "no others have started"
        fields = {LOADING_FIELD: 25} if loading.pop(0) else {}
        return {0: state_page(**fields)}

    async with serving(proxy):
        monkeypatch.setattr(worker_client, "request_all", request_all)
        proxy.written["unknown_apis"] = "pass"
        await proxy.supervisor.reload("test")
        assert requests == [("GET", STATE_PAGE)] * 4, "the last one is for the links of the new workers"
        assert loading == []
    assert proxy.status == ENDED


def state_page(**fields: object) -> Response:
    return Response(HTTPStatus.OK, json.dumps({"ready": True} | fields).encode(), JSON)


@pytest.mark.parametrize(
    ("linked", "times"),
    [
        ([["a/0"], ["a/0", "a/1"], ["a/0", "a/1", "a/3"]], 4),
        ([None], 2),
        ([[]] * 100, 5),
    ],
    ids=["linked later", "one that has no links", "never linked"],
)
async def test_workers_hand_over_once_the_new_ones_are_linked_to_all_others(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, linked: list[list[str] | None], times: int
) -> None:
    """They know the groups then, and load them first. Bounded: the group of proxies may be away."""
    monkeypatch.setattr(supervisor, "LINKED_S", 0.35)
    monkeypatch.setattr(supervisor, "name_of", lambda _config, number: f"a/{number}")
    requests = []

    async def request_all(running: Mapping[int, Any], _method: str, _target: str) -> dict[int, Response]:
        requests.append(sorted(running))
        assert proxy.supervisor._ending is None, "nothing is handed over yet"
        if running.keys() == {0, 1}:
            return {}
        names = linked.pop(0)
        fields = {} if names is None else {LINKED_FIELD: names}
        return {
            2: state_page(**fields),
            3: state_page(**({} if names is None else {LINKED_FIELD: ["a/0", "a/1", "a/2"]})),
        }

    async with serving(proxy):
        monkeypatch.setattr(worker_client, "request_all", request_all)
        proxy.written["unknown_apis"] = "pass"
        await proxy.supervisor.reload("test")
        assert requests[0] == [0, 1]
        assert set(map(tuple, requests[1:])) == {(2, 3)}
        assert times - 1 <= len(requests) <= times
    assert proxy.status == ENDED


async def test_workers_that_never_serve_their_state_are_replaced_after_a_while(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "TAKEN_OVER_S", 0.3)

    async def request_all(*_arguments: object) -> dict[int, Response]:
        return {0: Response(HTTPStatus.OK, json.dumps({LOADING_FIELD: 25}).encode(), JSON)}

    async with serving(proxy):
        monkeypatch.setattr(worker_client, "request_all", request_all)
        proxy.written["unknown_apis"] = "pass"
        await proxy.supervisor.reload("test")
        while any(number in proxy.supervisor._running for number in (0, 1)):  # noqa: ASYNC110  # of processes
            await trio.sleep(0.01)
        assert await in_thread(proxy.responses) == {"2 pass", "3 pass"}
    assert proxy.status == ENDED


@pytest.mark.parametrize("drains_s", [0.1, 1.0], ids=["in time", "too long"])
async def test_workers_that_still_move_their_connections_are_given_time_before_others_replace_the_present_ones(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, drains_s: float
) -> None:
    """A client whose connections are all closed together looks up its bootstrap servers again."""
    monkeypatch.setattr(supervisor, "REST_OF_DRAIN_S", 0.5)
    ended, signals = trio.Event(), []

    class Draining:
        """Generation that still moves connections."""

        async def ended(self) -> None:
            await ended.wait()

        def signal(self, number: signal.Signals) -> None:
            signals.append((number, ended.is_set()))
            ended.set()

    async with serving(proxy), trio.open_nursery() as nursery:
        draining: Any = Draining()
        proxy.supervisor._ending = draining

        async def end() -> None:
            await trio.sleep(drains_s)
            ended.set()

        nursery.start_soon(end)
        proxy.written["unknown_apis"] = "pass"
        await proxy.supervisor.reload("test")
        assert signals == [(signal.SIGTERM, drains_s < 0.5)]
        nursery.cancel_scope.cancel()
    assert proxy.status == ENDED


async def test_the_sockets_between_workers_are_removed(proxy: Proxy, places: Places) -> None:
    folder = Path(places.admin(0)).parent
    async with serving(proxy):
        assert folder.is_dir()
    places.remove()
    assert not folder.exists()
