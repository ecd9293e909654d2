"""Admin listener of a supervisor, over workers that a test plays."""

from __future__ import annotations

import json
import re
from functools import partial
from http import HTTPStatus
from typing import Any

import h11
import pytest
from kafka_share_proxy.app.observing import reload_page
from kafka_share_proxy.app.observing.admin_listener import Response
from kafka_share_proxy.app.observing.confirmations import Sender
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.settings.live_settings import Reloaded
from kafka_share_proxy.app.workers import worker_client
from kafka_share_proxy.app.workers.supervisor_pages import SupervisorPages
from kafka_share_proxy.app.workers.worker_process import WorkerProcess, start_process
from kafka_share_proxy.feature.metrics import Metrics

GROUPS = {"groups": [], "resting_partitions": 0, "complete": True, "elsewhere": []}
NO_GROUP = (404, {"reason": "share group is held by another proxy of the fleet"})


class Workers:
    """Two workers, with responses by target."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.responses: dict[tuple[str, str], tuple[int, Any]] = {}
        self.posted: list[tuple[str, str]] = []
        self.running = {number: WorkerProcess(number, number, "", start_process) for number in (0, 1)}
        for number, worker in self.running.items():
            worker.number, worker.admin = number, f"admin-{number}"
        own = Metrics()
        own.add("workers", "gauge", "Workers.", lambda: 2)
        config = Config.model_validate({"listen": "127.0.0.1:9092", "workers": 2})
        self.pages = SupervisorPages(self.running, config, {"reload": partial(reload_page.response, self.reload)}, own)
        self.reloads = 0
        monkeypatch.setattr(worker_client, "request", self.request)

    async def reload(self, _reason: str) -> Reloaded:
        self.reloads += 1
        return Reloaded(("drain_s",))

    async def request(self, path: str, method: str, target: str) -> Response | None:
        if method == "POST":
            self.posted.append((path, target))
            return Response(HTTPStatus.OK, b"{}")
        response = self.responses.get((path, target))
        if response is None:
            return None
        status, body = response
        return Response(HTTPStatus(status), body if isinstance(body, bytes) else json.dumps(body).encode())

    def all_respond(self, target: str, *responses: tuple[int, Any]) -> None:
        for number, response in enumerate(responses):
            self.responses[f"admin-{number}", target] = response

    async def get(self, target: str, method: str = "GET", peer: str = "127.0.0.1", **headers: str) -> tuple[int, Any]:
        pairs = [("Host", "localhost"), *headers.items()]
        response = await self.pages.response(h11.Request(method=method, target=target, headers=pairs), peer)
        try:
            return response.status, json.loads(response.body)
        except ValueError:
            return response.status, response.body


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    return Workers(monkeypatch)


async def test_the_supervisor_is_alive_by_itself(workers: Workers) -> None:
    assert await workers.get("/livez") == (200, {"alive": True, "workers": {"0": None, "1": None}})


async def test_only_names_of_this_machine_are_served(workers: Workers) -> None:
    assert "localhost" in workers.pages.hosts
    assert "evil.example" not in workers.pages.hosts


async def test_the_proxy_is_ready_while_one_worker_is(workers: Workers) -> None:
    workers.all_respond("/readyz", (503, {"ready": False, "reasons": ["starting"]}), (200, {"ready": True}))
    assert await workers.get("/readyz") == (200, {"ready": True, "workers": {"0": False, "1": True}})
    workers.all_respond("/readyz", *[(503, {"ready": False, "reasons": ["starting"]})] * 2)
    assert (await workers.get("/readyz"))[0] == 503


async def test_a_probe_that_does_not_exist_is_not_found(workers: Workers) -> None:
    workers.all_respond("/readyz/nonsense", *[(404, {"reason": "there are"})] * 2)
    assert await workers.get("/readyz/nonsense") == (404, {"reason": "there are"})


async def test_metrics_are_those_of_all_workers_and_of_the_supervisor(workers: Workers) -> None:
    workers.all_respond("/metrics", *[(200, b"# TYPE ksp_connections gauge\nksp_connections 2.0\n")] * 2)
    _, text = await workers.get("/metrics")
    assert b"\nksp_connections 4.0\n" in text
    assert b"\nksp_workers 2.0\n" in text


async def test_a_worker_that_does_not_respond_is_left_out(workers: Workers) -> None:
    workers.all_respond("/groups", (200, GROUPS))
    assert (await workers.get("/groups"))[0] == 200


async def test_without_any_response_the_reason_is_reported(workers: Workers) -> None:
    assert await workers.get("/groups") == (503, {"reason": "no worker responds"})


@pytest.mark.parametrize("target", ["/connections", "/connections/orders-app"])
async def test_the_connections_of_all_workers_are_listed_also_of_one_client(workers: Workers, target: str) -> None:
    line = {"waits_s": 0, "request_bytes": 1, "response_bytes": 1}
    workers.all_respond(target, *[(200, {"connections": [line], "left_out": 0})] * 2)
    status, body = await workers.get(target)
    assert (status, [each["worker"] for each in body["connections"]]) == (200, [0, 1])


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("target", ["/covers/0/begin", "/covers/0/end", "/gives/0/2", "/covers"])
async def test_pages_for_the_supervisor_are_served_to_no_other_client(
    workers: Workers, target: str, method: str
) -> None:
    workers.all_respond(target, *[(200, {})] * 2)
    assert (await workers.get(target, method))[0] == 404
    assert workers.posted == []


async def test_other_methods_are_refused(workers: Workers) -> None:
    workers.all_respond("/groups", *[(200, GROUPS)] * 2)
    reason = "only GET, HEAD and POST are served here"
    assert await workers.get("/groups", "DELETE") == (405, {"reason": reason})


async def test_a_group_is_shown_by_the_worker_that_holds_it(workers: Workers) -> None:
    workers.all_respond("/groups/a", NO_GROUP, (200, {"group": "a"}))
    assert await workers.get("/groups/a") == (200, {"group": "a"})


async def test_a_group_that_is_not_known_yet_is_not_reported_as_missing(workers: Workers) -> None:
    workers.all_respond("/groups/a", (404, {"reason": "not held here"}), (503, {"reason": "not known yet"}))
    assert await workers.get("/groups/a") == (503, {"reason": "not known yet"})


async def test_a_change_is_sent_to_the_worker_that_holds_the_group(workers: Workers) -> None:
    workers.all_respond("/groups/a", NO_GROUP, (200, {"group": "a"}))
    assert await workers.get("/groups/a/members/m/release", "POST") == (200, {})
    assert workers.posted == [("admin-1", "/groups/a/members/m/release")]


async def test_a_change_of_a_group_that_no_worker_holds_is_decided_by_one(workers: Workers) -> None:
    """A group that the brokers hold can be taken back, for example."""
    workers.all_respond("/groups/a", NO_GROUP, NO_GROUP)
    assert await workers.get("/groups/a/take-back/30", "POST") == (200, {})
    assert workers.posted == [("admin-0", "/groups/a/take-back/30")]


async def test_without_a_worker_nothing_is_changed(workers: Workers) -> None:
    assert await workers.get("/groups/a/take-back/30", "POST") == (503, {"reason": "no worker responds"})


@pytest.mark.parametrize(("peer", "headers"), [("192.0.2.1", {}), ("127.0.0.1", {"Origin": "http://evil.example"})])
async def test_only_this_machine_changes_something_and_no_web_page(
    workers: Workers, peer: str, headers: dict[str, str]
) -> None:
    workers.all_respond("/groups/a", NO_GROUP, (200, {"group": "a"}))
    for target in ("/groups/a/members/m/release", "/reload"):
        assert (await workers.get(target, "POST", peer, **headers))[0] == 403
    assert (workers.posted, workers.reloads) == ([], 0)


async def test_other_settings_decide_who_may_change_something(workers: Workers) -> None:
    workers.pages.apply_settings(Config.model_validate({"listen": "127.0.0.1:9092", "admin_changes": "any"}))
    assert await workers.get("/reload", "POST", "192.0.2.1") == (200, {"changed": ["drain_s"], "needs_restart": []})


async def test_the_status_page_has_every_worker(workers: Workers) -> None:
    workers.all_respond("/", (200, b"<p>first</p>"), (200, b"<p>second</p>"))
    status, page = await workers.get("/")
    assert status == 200
    assert page.index(b"Worker 0") < page.index(b"first") < page.index(b"Worker 1") < page.index(b"second")


async def test_a_status_page_for_a_client_that_may_change_nothing_has_no_links_to_changes(workers: Workers) -> None:
    workers.all_respond("/?read-only", (200, b"<p>without links</p>"), (200, b""))
    _, page = await workers.get("/", peer="192.0.2.1")
    assert b"without links" in page


async def test_a_change_is_confirmed_at_the_supervisor_and_made_by_the_worker(workers: Workers) -> None:
    path = "/groups/a/members/m/release"
    workers.all_respond(path, NO_GROUP, (200, {"change": "release", "effect": "frees records", "button": "Release"}))
    workers.all_respond("/groups/a", NO_GROUP, (200, {"group": "a"}))
    sender = Sender("127.0.0.1", "localhost:9090", "http://localhost:9090", "same-origin")
    form = await workers.pages.confirmations.form(path, sender)
    assert form.status == HTTPStatus.OK
    token = re.search(r'name="confirmation" value="([^"]+)"', "".join(piece.decode() for piece in form.body))
    assert token is not None
    body = f"confirmation={token[1]}".encode()
    assert (await workers.pages.confirmations.change(path, sender, body)).status == HTTPStatus.OK
    assert workers.posted == [("admin-1", path)]
