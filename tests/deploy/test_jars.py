"""Kafka's jars: fetched once, verified by content, and no partial file is kept."""

from __future__ import annotations

import hashlib
import http.server
import io
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka import jars
from rich.console import Console

COORDINATE = "org.example:thing:1.0"
CONTENT = b"a jar" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
CHECKOUT = Path(__file__).resolve().parents[2]
WAITER = (
    "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
    "from kafka_share_proxy.localkafka.jars import exclusive\n"
    "print('up', flush=True)\n"
    "with exclusive(Path(sys.argv[2])): print((Path(sys.argv[2]) / 'done').exists(), flush=True)"
)


class Repository(http.server.BaseHTTPRequestHandler):
    """Maven repository of one jar, which can be set to fail first."""

    requested: list[str]
    failures: int

    def do_GET(self) -> None:
        type(self).requested.append(self.path)
        if len(type(self).requested) <= type(self).failures:
            self.send_error(503)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Repository]]:
    handler = type("Handler", (Repository,), {"requested": [], "failures": 0})
    server = http.server.HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv(jars.REPOSITORY_VARIABLE, f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv(jars.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "PAUSE_S", 0.0)
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


def fetch(digest: str = SHA256) -> None:
    jars.fetch({COORDINATE: digest}, Console(file=io.StringIO()))


def test_fetched_once(repository: type[Repository]) -> None:
    """Jars in the cache are not requested again."""
    fetch()
    fetch()
    assert repository.requested == ["/org/example/thing/1.0/thing-1.0.jar"]
    assert [path.read_bytes() for path in jars.cache_folder().iterdir()] == [CONTENT]


def test_repeated_after_a_failure(repository: type[Repository]) -> None:
    """A repository that fails temporarily gets another request."""
    repository.failures = jars.ATTEMPTS - 1
    fetch()
    assert len(repository.requested) == jars.ATTEMPTS


def test_gives_up(repository: type[Repository]) -> None:
    """A repository that always fails ends it with a text that names the jar."""
    repository.failures = 1000
    with pytest.raises(jars.JarError, match=re.escape(COORDINATE)):
        fetch()
    assert len(repository.requested) == jars.ATTEMPTS


def test_wrong_content_is_refused(repository: type[Repository]) -> None:
    """A jar that is not the pinned one never gets into the cache, and leaves nothing there."""
    with pytest.raises(jars.JarError, match="sha256"):
        fetch("0" * 64)
    assert list(jars.cache_folder().iterdir()) == []


def test_damaged_jar_is_fetched_again(repository: type[Repository]) -> None:
    """The content in the cache is checked every time."""
    fetch()
    next(jars.cache_folder().iterdir()).write_bytes(b"damaged")
    fetch()
    assert [path.read_bytes() for path in jars.cache_folder().iterdir()] == [CONTENT]


def test_every_jar_is_pinned() -> None:
    """Every release names group, artifact, version and a sha256 of each jar."""
    for release, pinned in jars.releases().items():
        assert pinned, release
        for coordinate, digest in pinned.items():
            assert len(coordinate.split(":")) == 3, coordinate
            assert re.fullmatch("[0-9a-f]{64}", digest), coordinate


def test_the_second_waits_for_the_first(tmp_path: Path) -> None:
    """And finds the work done."""
    folder = tmp_path / "cache"
    command = [sys.executable, "-c", WAITER, str(CHECKOUT / "proxy"), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiter:
        assert waiter.stdout is not None
        with jars.exclusive(folder):
            assert waiter.stdout.readline() == "up\n"
            (folder / "done").touch()
        assert waiter.stdout.readline() == "True\n"
