"""Reload of a running proxy: what it applies, what it refuses, and what triggers it."""

from __future__ import annotations

import json
import os
import signal
import ssl
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

import pytest
import trio
import trustme
from kafka_share_proxy.app.serving.reloading import Reloading
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.settings.live_settings import Reloaded
from kafka_share_proxy.app.settings.tls_contexts import TlsContexts, contexts
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings, open_connection
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.localkafka.addresses import HOST
from kafka_share_proxy.loop.tls_context import TlsContext
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.values import Address

from tests.app.serving.test_composition import RecordedNotes
from tests.app.serving.test_server import proxy
from tests.support.small_broker import Broker

CA = trustme.CA()
LIMIT_S = 20


def write_pair(folder: Path, name: str = HOST) -> None:
    folder.mkdir(exist_ok=True)
    pair = CA.issue_cert(name)
    (folder / "cert.pem").write_bytes(b"".join(each.bytes() for each in pair.cert_chain_pems))
    (folder / "key.pem").write_bytes(pair.private_key_pem.bytes())


def secured(folder: Path, **settings: object) -> Config:
    tls = {"cert_file": str(folder / "cert.pem"), "key_file": str(folder / "key.pem")}
    return Config.model_validate({"upstream": {"bootstrap": "a:1"}, "listen": "b:2", "client_tls": tls} | settings)


class Play:
    """A reload whose settings are those of a test."""

    def __init__(self, config: Config) -> None:
        self.written: Config | ConfigError = config
        self.applied: list[tuple[Config, list[str]]] = []
        self.notes = RecordedNotes()
        self.tls: TlsContexts = contexts(config)
        self.reloading = Reloading(self.read, config, self.tls, self.apply, self.notes)

    def read(self) -> Config:
        if isinstance(self.written, ConfigError):
            raise self.written
        return self.written

    def apply(self, config: Config, names: Sequence[str]) -> None:
        self.applied.append((config, list(names)))

    @property
    def clients(self) -> ssl.SSLContext:
        assert self.tls.clients is not None
        return self.tls.clients.current


async def test_changed_settings_and_new_certificates_are_applied_together(tmp_path: Path) -> None:
    write_pair(tmp_path)
    play = Play(secured(tmp_path, drain_s=1))
    before = play.clients
    play.written = secured(tmp_path, drain_s=2, first_port=77)
    assert await play.reloading.reload("test") == Reloaded(("drain_s",), ("first_port",))
    config, names = play.applied[-1]
    assert (config.drain_s, config.first_port, names) == (2, None, ["drain_s"])
    assert play.clients is not before
    assert await play.reloading.reload("test") == Reloaded((), ("first_port",)), "it still needs a restart"


async def test_a_reload_with_a_mistake_changes_nothing(tmp_path: Path) -> None:
    write_pair(tmp_path)
    play = Play(secured(tmp_path, drain_s=1))
    before = play.clients
    play.written = secured(tmp_path, drain_s=2)
    (tmp_path / "key.pem").write_text("no key")
    with pytest.raises(ConfigError, match=r"client_tls\.cert_file: .*cert.pem and .*key.pem do not work"):
        await play.reloading.reload("test")
    play.written = ConfigError("drain_s: should be a number")
    await play.reloading.try_reload("test")
    assert (play.applied, play.clients) == ([], before)
    assert play.notes.events == ["reload-refused", "reload-refused"]


async def test_tls_that_was_off_stays_off_until_a_restart(tmp_path: Path) -> None:
    write_pair(tmp_path)
    plain = Config.model_validate({"upstream": {"bootstrap": "a:1"}, "listen": "b:2"})
    play = Play(plain)
    play.written = secured(tmp_path)
    reloaded = await play.reloading.reload("test")
    assert reloaded == Reloaded((), ("client_tls.cert_file", "client_tls.key_file"))
    assert play.tls.clients is None


async def serial(port: int) -> int:
    """Return the serial number of the certificate that a new connection gets."""
    context = ssl.create_default_context()
    CA.configure_trust(context)
    stream = await trio.open_ssl_over_tcp_stream(HOST, port, ssl_context=context)
    async with stream:
        await stream.do_handshake()
        return int(stream.getpeercert()["serialNumber"], 16)


async def until_serial_is_not(old: int, port: int) -> int:
    with trio.fail_after(LIMIT_S):
        while (now := await serial(port)) == old:  # noqa: ASYNC110 - another process reads the file
            await trio.sleep(0.1)
    return now


def link(target: Path, at: Path) -> None:
    """Replace a link in one step, as Kubernetes does with a mounted Secret."""
    at.with_suffix(".new").symlink_to(target)
    at.with_suffix(".new").rename(at)


@pytest.mark.slow
async def test_new_handshakes_get_a_replaced_certificate_and_connections_stay(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    upstream = await Broker(0).listen(nursery)
    write_pair(tmp_path / "one")
    write_pair(tmp_path / "two")
    link(tmp_path / "one", tmp_path / "tls")
    tls = {"client_tls.cert_file": tmp_path / "tls/cert.pem", "client_tls.key_file": tmp_path / "tls/key.pem"}
    async with proxy(tmp_path, upstream, tls) as running:
        await running.until(200)
        context = ssl.create_default_context()
        CA.configure_trust(context)
        settings = ClusterClientSettings(tls=TlsContext(context))
        opened = await open_connection(Address(HOST, running.port), settings)
        old = await serial(running.port)
        link(tmp_path / "two", tmp_path / "tls")
        new = await until_serial_is_not(old, running.port)

        (tmp_path / "two/cert.pem").write_text("broken")
        await running.until_logged("reload-refused")
        assert await serial(running.port) == new
        await opened.send_request(ApiKey.METADATA, registry.message("MetadataRequest")(topics=[]))
        await opened.aclose()


@pytest.mark.slow
async def test_sighup_and_the_command_apply_the_settings_file(tmp_path: Path, nursery: trio.Nursery) -> None:
    upstream = await Broker(0).listen(nursery)
    file = tmp_path / "settings.yaml"
    file.write_text("log_level: info")
    async with proxy(tmp_path, upstream, config=file) as running:
        await running.until(200)
        file.write_text("log_level: debug\nfirst_port: 1000")
        running.process.send_signal(signal.SIGHUP)
        await running.until_logged("reloaded")
        await running.until_logged("reload-needs-restart")
        (line,) = [each for each in running.log() if each["event"] == "reload-needs-restart"]
        assert line["settings"] == "first_port"
        file.write_text("log_level: loud")
        response = await reload(running.admin)
        assert response[0] == HTTPStatus.UNPROCESSABLE_ENTITY
        assert "log_level" in response[1]["reason"]
        file.write_text("log_level: warning")
        assert await reload(running.admin) == (HTTPStatus.OK, {"changed": ["log_level"], "needs_restart": []})
        os.kill(running.process.pid, signal.SIGHUP)
        assert await running.until(200)


async def reload(port: int) -> tuple[int, dict[str, object]]:
    response = b""
    stream = await trio.open_tcp_stream(HOST, port)
    async with stream:
        await stream.send_all(b"POST /reload HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async for data in stream:
            response += data
    head, _, body = response.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)
