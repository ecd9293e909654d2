"""The image is built, and `check`, `serve` and the probes run in it as user 10001 with a read-only root.

    tests/long/run_kubernetes       # or this file alone: tests/run tests/long/kubernetes_image.py -s

Needs root, Buildah and debootstrap (Debian's packages); says what is missing.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.image_build import USER, Builder, in_root, missing
from tests.support.raw import until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(1800)]
CONFIG = "/etc/kafka-share-proxy/config"
MIB_MAX = 400
UNCHECKED = 0b01
"""Flags in the header of a module that was compiled without a check of its source's time (PEP 552)."""


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    if lacks := missing():
        pytest.skip(f"the image cannot be built here: {lacks}")
    built = Builder(tmp_path_factory.mktemp("image") / "buildah")
    built.build()
    return built


@pytest.fixture(scope="module")
def root(builder: Builder) -> Iterator[Path]:
    with builder.mounted() as mounted:
        yield mounted


class Settings:
    """Folder with a settings file, and its ports."""

    def __init__(self, folder: Path, kafka: Cluster, workers: int = 1) -> None:
        self.port, self.admin = (ports := free_ports(12))[0], ports[-1]
        self.folder = folder
        settings = {
            "upstream": {"bootstrap": kafka.bootstrap},
            "listen": f"{HOST}:{self.port}",
            "admin": f"{HOST}:{self.admin}",
            "log_format": "json",
            "drain_s": 2,
            "workers": workers,
        }
        folder.chmod(0o755)
        (folder / "settings.yaml").write_text(yaml.safe_dump(settings))

    def get(self, path: str) -> int:
        connection = http.client.HTTPConnection(HOST, self.admin, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()


def test_the_image_says_user_entry_point_and_size(builder: Builder, root: Path) -> None:
    config, sizes = builder.config(), builder.sizes_mib(root)
    print("\n" + ", ".join(f"{name}: {mib:.0f} MiB" for name, mib in sizes.items()))
    assert config["User"] == USER
    assert config["Entrypoint"] == ["kafka-share-proxy"]
    assert sizes["image"] < MIB_MAX
    history = builder.buildah("inspect", "--type", "image", builder.buildah("images", "-q").split()[0])
    assert "pip.conf" not in [path.name for path in (root / "etc").iterdir()], "secrets are not kept"
    assert "index-url" not in history


def test_no_module_is_compiled_at_each_start(root: Path) -> None:
    """Layers round the times of files, and the root is read-only."""
    library = root / "opt" / "kafka-share-proxy" / "lib"
    compiled = [path.read_bytes()[:16] for path in library.rglob("*.pyc")]
    assert len(compiled) == len(list(library.rglob("*.py")))
    assert {int.from_bytes(header[4:8], "little") for header in compiled} == {UNCHECKED}


def test_check_works_in_it(builder: Builder, root: Path, kafka_39: Cluster, tmp_path: Path) -> None:
    Settings(tmp_path, kafka_39)
    command = in_root(root, builder.config(), {CONFIG: tmp_path}, ["check", "--config", f"{CONFIG}/settings.yaml"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("workers", [1, 2])
def test_serve_and_the_probes_work_in_it(
    builder: Builder, root: Path, kafka_39: Cluster, tmp_path: Path, workers: int
) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    settings = Settings(folder, kafka_39, workers)
    command = in_root(root, builder.config(), {CONFIG: folder}, ["serve", "--config", f"{CONFIG}/settings.yaml"])
    child = Child(command, tmp_path / "serve.log")
    try:
        until(lambda: settings.get("/readyz/share-groups") == 200, "the proxy to be ready", 120)
        assert [settings.get(path) for path in ("/livez", "/readyz", "/metrics")] == [200, 200, 200]
        producer = Producer({"bootstrap.servers": f"{HOST}:{settings.port}", "log_level": 0})
        producer.produce("of-the-image", b"record")
        assert producer.flush(30) == 0
        serving = [child.pid] if workers == 1 else _children(child.pid)
        assert len(serving) >= workers, "and the process that forks them"
        for pid in {child.pid, *serving}:
            _assert_restricted(pid)
        compiled = [pid for pid in serving if "_pump" in Path(f"/proc/{pid}/maps").read_text()]
        assert len(compiled) >= workers, "the hot paths are compiled"
        assert child.stop() == 0, child.output()
    except (AssertionError, TimeoutError):
        print(child.output())
        raise
    finally:
        child.kill()
    lines = [json.loads(line) for line in (tmp_path / "serve.log").read_text().splitlines()]
    assert lines


def _children(pid: int) -> list[int]:
    """Return the child processes that any thread has started."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(each) for path in lists for each in path.read_text().split()]


def _assert_restricted(pid: int) -> None:
    state, mounts = _process(pid)
    assert state["Uid"].split() == state["Gid"].split() == ["10001"] * 4
    assert int(state["CapEff"], 16) == 0
    assert state["NoNewPrivs"] == "1"
    assert re.search(r" / / ro,| \S+ / ro,", mounts), mounts


def _process(pid: int) -> tuple[Mapping[str, Any], str]:
    status = Path(f"/proc/{pid}/status").read_text()
    pairs = (line.partition(":")[::2] for line in status.splitlines())
    return {key: value.strip() for key, value in pairs}, Path(f"/proc/{pid}/mountinfo").read_text()
