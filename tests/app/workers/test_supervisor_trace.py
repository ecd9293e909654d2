"""Traces of all workers as one."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

import pytest
import trio
from kafka_share_proxy.app.observing.admin_listener import Response
from kafka_share_proxy.app.workers import worker_client
from kafka_share_proxy.app.workers.supervisor_trace import SupervisorTrace, merged
from kafka_share_proxy.app.workers.worker_process import WorkerProcess, start_process
from kafka_share_proxy.feature.admin import AdminRequest


def body(worker: int, *lines: float, on: bool = True) -> dict[str, Any]:
    return {
        "client": "app",
        "on": on,
        "ended": "" if on else "its time is over",
        "seconds_left": 5.0 + worker,
        "connections_left_out": 1,
        "lines": [json.dumps({"at": at, "request": "Fetch"}) for at in lines],
        "position": f"{worker}:{len(lines)}",
    }


def test_lines_are_ordered_by_time_and_have_the_number_of_their_worker() -> None:
    whole = merged({0: body(0, 1.25, 3.5), 1: body(1, 2.5)})
    trace_lines = [json.loads(line) for line in whole["lines"]]
    assert [(line["worker"], line["at"]) for line in trace_lines] == [(0, 1.25), (1, 2.5), (0, 3.5)]
    assert (whole["position"], whole["connections_left_out"], whole["seconds_left"]) == ("0:2,1:1", 2, 6.0)


def test_a_trace_is_on_while_a_worker_traces() -> None:
    assert merged({0: body(0, on=False), 1: body(1)})["on"] is True
    ended = merged({0: body(0, on=False)})
    assert (ended["on"], ended["ended"]) == (False, "its time is over")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """Requests to workers, which respond as those that trace."""
    requests = []

    async def request(path: str, method: str, target: str) -> Response | None:
        requests.append((path, method, target))
        return Response(HTTPStatus.OK, json.dumps(body(int(path))).encode())

    monkeypatch.setattr(worker_client, "request", request)
    return requests


def worker(number: int) -> WorkerProcess:
    return WorkerProcess(number, number, str(number), start_process)


async def test_a_worker_that_joins_traces_for_the_rest_of_the_time(
    sent: list[tuple[str, str, str]], autojump_clock: trio.abc.Clock
) -> None:
    trace = SupervisorTrace({0: worker(0), 1: worker(1)})
    await trace.join(worker(2))
    assert sent == []
    response = await trace.response(AdminRequest(method="POST", parts=["begin", "a/b", "6"]))
    assert response is not None
    assert sorted(sent) == [(name, "POST", "/trace/begin/a%2Fb/6") for name in ("0", "1")]
    await trio.sleep(2)
    await trace.join(worker(2))
    assert sent[2:] == [("2", "POST", "/trace/begin/app/4.000")]
    await trio.sleep(5)
    await trace.join(worker(3))
    assert len(sent) == 3


async def test_client_without_the_right_to_change_something_cannot_begin_a_trace(
    sent: list[tuple[str, str, str]],
) -> None:
    trace = SupervisorTrace({0: worker(0)})
    response = await trace.response(AdminRequest(method="POST", parts=["begin", "app"], forbidden="no"))
    assert (response and response[0], sent) == (HTTPStatus.FORBIDDEN, [])
