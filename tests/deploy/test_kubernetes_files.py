"""Files of ConfigMaps and Secrets that Kubernetes swaps under a running proxy."""

from __future__ import annotations

import http.client
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.front import installed_command

from tests.support.brokers import OLD, USERS, Running
from tests.support.mounted_files import MountedFiles
from tests.support.raw import until


def test_a_reader_sees_whole_versions(tmp_path: Path) -> None:
    files = MountedFiles(tmp_path / "mounted", {"a": "0" * 10_000, "b": "0" * 10_000})
    stop, versions = threading.Event(), set()

    def read() -> None:
        while not stop.is_set():
            with suppress(FileNotFoundError):  # as with the kubelet, a link may lead to a version that was just removed
                versions.add(frozenset((files.folder / "a").read_text()))

    reader = threading.Thread(target=read)
    reader.start()
    for version in range(1, 200):
        files.write({"a": str(version % 10) * 10_000})
    stop.set()
    reader.join()
    assert all(len(characters) == 1 for characters in versions)
    assert len(versions) > 1
    assert not (files.folder / "b").exists()


def test_a_replaced_file_has_a_new_link_target(tmp_path: Path) -> None:
    files = MountedFiles(tmp_path / "mounted", {"a": "1"})
    before = (files.folder / "a").resolve()
    files.write({"a": "2"})
    assert (files.folder / "a").resolve() != before
    assert not before.exists()


@pytest.mark.broker
@pytest.mark.slow
def test_a_swapped_password_is_used_without_a_restart(running: Running, tmp_path: Path) -> None:
    """The Secret has a wrong password first: the proxy is unready, and recovers when the Secret is replaced."""
    kafka, ports = running.cluster(OLD, sasl=USERS), free_ports(12)
    secret = MountedFiles(tmp_path / "secret", {"password": "wrong"})
    sasl = {"mechanism": "PLAIN", "username": "admin", "password_file": str(secret.folder / "password")}
    settings = {
        "upstream": {"bootstrap": kafka.bootstrap, "sasl": sasl},
        "listen": f"{HOST}:{ports[0]}",
        "admin": f"{HOST}:{ports[-1]}",
    }
    config = MountedFiles(tmp_path / "config", {"settings.yaml": yaml.safe_dump(settings)})
    command = [*installed_command(), "serve", "--config", str(config.folder / "settings.yaml")]
    child = Child(command, tmp_path / "proxy.log")
    try:
        until(lambda: get(ports[-1], "/livez") == 200, "the proxy to live", 60)
        until(lambda: "authenticat" in child.output().lower(), "the brokers to refuse the password", 60)
        assert get(ports[-1], "/readyz") == 503
        secret.write({"password": USERS.users["admin"]})
        until(lambda: get(ports[-1], "/readyz/share-groups") == 200, "the proxy to be ready", 60)
        assert child.stop() == 0
    except (AssertionError, TimeoutError):
        print(child.output())
        raise
    finally:
        child.kill()


def get(port: int, path: str) -> int:
    """Return the status of a request; 0 if nothing listens yet."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()
