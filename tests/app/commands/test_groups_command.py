"""The command `groups`."""

from __future__ import annotations

import io
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import quote

import pytest
from kafka_share_proxy.app import cli
from kafka_share_proxy.app.commands import groups_command
from kafka_share_proxy.sharegroups import group_report
from kafka_share_proxy.wire.values import Address
from rich.console import Console
from typer.testing import CliRunner

from tests.support.letter_world import LetterWorld
from tests.support.ports import World
from tests.support.share_steps import REJECT, RELEASE
from tests.support.share_views import all_groups

runner = CliRunner()


@pytest.fixture
def world() -> World:
    """Group g, whose member holds 0-9 of t."""
    share_world = World()
    share_world.configure("g", share_auto_offset_reset="earliest")
    topic = share_world.cluster.create("t", leaders=(1, 1, 1))
    share_world.cluster.produce(topic, 10)
    member = share_world.member(member_id="[red]m\x1b1")
    member.heartbeat(0, ["t"])
    member.fetch(topic)
    return share_world


def printed(renderable) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(renderable)
    return console.file.getvalue()


def test_all_groups_are_shown_in_one_table(world):
    text = printed(groups_command.all_groups(all_groups(world)))
    assert text.splitlines()[1].split() == ["g", "Stable", "1", "3", "10", "0", "0", "0", "0.0", "s"]


def test_one_group_is_shown_with_members_partitions_and_locks(world, monkeypatch):
    """A client's id is neither markup nor a terminal command; long tables are truncated."""
    view = group_report.group(world.services, "g")
    text = printed(groups_command.one_group(view))
    assert "[red]m?1" in text
    assert "t:0-2" in text
    assert any(line.split()[:2] == ["t-0", "0-9"] for line in text.splitlines())
    monkeypatch.setattr(groups_command, "ROWS_MAX", 1)
    assert "... and 2 more" in printed(groups_command.one_group(view))


def test_group_with_key_order_is_shown_with_its_queue():
    """A rejected record whose topic is missing, one that waits for its redelivery, and keys blocked by both."""
    world = LetterWorld(partitions=0)
    world.configure("g", share_ordering="key", share_redelivery_delay_ms="60000")
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 4, keys=[b"a", b"b", b"a", b"b"])
    member = world.member()
    member.heartbeat(0, ["t"])
    member.fetch(topic)
    member.fetch(acks={(topic.topic_id, 0): [(0, 1, [REJECT, RELEASE])]}, wait_ms=0)
    world.timers.advance(5)
    lines = printed(groups_command.one_group(group_report.group(world.services, "g"))).splitlines()
    rows = [line.split() for line in lines if line.startswith(" t-0 ")]
    assert ["0", "1", "5.0", "s"] in [row[2:] for row in rows], "key of the record that holds the start offset"
    assert ["1", "1", "-"] in [row[2:] for row in rows], "key of the record that waits"
    (delayed,) = [row for row in rows if row[1] == "1-1"]
    assert delayed[2] == "1"
    assert 49 <= float(delayed[3]) <= 61
    (letters,) = [line for line in lines if line.startswith("dead letters to dlq.t")]
    assert "0 written since the start of the proxy, 1 waiting; not written at present: topic dlq.t does not" in letters


class Listener:
    """An admin listener that gives the responses of a test."""

    def __init__(self) -> None:
        self.responses: dict[tuple[str, str], tuple[int, bytes]] = {}
        responses = self.responses

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                status, body = responses.get((self.command, self.path), (404, b'{"reason": "nothing there"}'))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = _any

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def listener():
    running_listener = Listener()
    yield running_listener
    running_listener.close()


def run(*arguments: str):
    return runner.invoke(cli.app, ["groups", *arguments], env={"KSP_ADMIN": "", "COLUMNS": "200"})


def test_the_command_shows_and_releases(listener):
    listener.responses["GET", "/groups"] = (200, b'{"groups": [], "resting_partitions": 7}')
    done = run("--admin", listener.address)
    assert (done.exit_code, "7 idle partitions rest" in done.output) == (0, True)
    assert '"resting_partitions": 7' in run("--admin", listener.address, "--json").output
    response = b'{"released_records": 10, "durable": true}'
    listener.responses["POST", "/groups/a%2Fg/members/m%201/release"] = (200, response)
    done = run("a/g", "--release", "m 1", "--admin", listener.address)
    assert (done.exit_code, done.output) == (0, "10 records of m 1 in a/g are free again\n")


def test_failures_are_reported(listener):
    """Status 1 with the listener's reason; 2 for a command that is wrong."""
    done = run("absent", "--admin", listener.address)
    assert (done.exit_code, "nothing there" in done.output) == (1, True)
    listener.responses["GET", "/groups"] = (200, b"<html>")
    assert "no admin listener" in run("--admin", listener.address).output
    assert run().exit_code == 2
    assert run("--admin", "nonsense").exit_code == 2
    assert run("--release", "m", "--admin", listener.address).exit_code == 2


def test_a_list_that_is_not_complete_says_why(listener):
    body = {"groups": [], "resting_partitions": 0, "complete": False, "reason": "share state is being read"}
    listener.responses["GET", "/groups"] = (200, json.dumps(body).encode())
    assert "This list is not complete: share state is being read." in run("--admin", listener.address).output


def test_ids_and_reasons_do_not_control_the_terminal(listener):
    """Clients choose ids: escape sequences are shown as question marks everywhere."""
    evil = "g\x1b]0;owned\x07\x1b[2J"
    body = {"group": evil, "state": "Empty", "epoch": 1, "members": [], "partitions": [], "locks": []}
    body |= {"partitions_left_out": 0, "locks_left_out": 0}
    path = f"/groups/{quote(evil, safe='')}"
    listener.responses["GET", path] = (200, json.dumps(body).encode())
    released = json.dumps({"released_records": 1, "durable": True}).encode()
    listener.responses["POST", f"{path}/members/m/release"] = (200, released)
    listener.responses["GET", "/groups"] = (404, json.dumps({"reason": evil}).encode())
    for done in (
        run(evil, "--admin", listener.address),
        run(evil, "--release", "m", "--admin", listener.address),
        run("--admin", listener.address),
    ):
        assert "g?]0;owned??[2J" in done.output
        assert "\x1b" not in done.output


def test_no_listener_at_the_address_is_reported():
    with pytest.raises(groups_command.NoResponse, match="does not respond"):
        groups_command.fetch(Address("127.0.0.1", 1), "/groups")


def test_watching_ends_with_the_interrupt(listener, monkeypatch):
    listener.responses["GET", "/groups"] = (200, b'{"groups": [], "resting_partitions": 0}')
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(groups_command.time, "sleep", sleep)
    host, _, port = listener.address.partition(":")
    console = Console(file=io.StringIO(), width=100)
    groups_command.show(Address(host, int(port)), None, as_json=False, watch=True, console=console)
    assert "GROUP" in console.file.getvalue()
    assert looks == [groups_command.WATCH_EVERY_S] * 3
