"""An upgrade with Helm keeps the secret of a fleet. Builds Helm with Go if there is none.

tests/long/run_kubernetes       # which runs tests/deploy/test_kubernetes_rendering.py with this Helm as well
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.helm_charts import CHART, run_helm
from tests.support.kubernetes_tools import need_built
from tests.support.small_api import Api, small_api

SECRET = base64.b64encode(b"made by the first installation").decode()
NAME = "kafka-share-proxy-peer"


@pytest.fixture(scope="module", autouse=True)
def helm() -> None:
    need_built("helm")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[type[Api], Path]]:
    with small_api(tmp_path) as running:
        yield running


def rendered_secret(config: Path) -> str:
    done = run_helm(
        "template", "kafka-share-proxy", str(CHART), "--namespace", "kafka", "--dry-run=server",
        "--set", "mode=fleet,settings.upstream.bootstrap=kafka:9092", "--show-only", "templates/peer-secret.yaml",
        environment={"KUBECONFIG": str(config)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    secret: str = yaml.safe_load(done.stdout)["data"]["secret"]
    return secret


def test_an_upgrade_keeps_the_secret_of_the_fleet(api: tuple[type[Api], Path]) -> None:
    handler, config = api
    assert rendered_secret(config) != rendered_secret(config), "before the installation there is none"
    handler.secrets[NAME] = SECRET
    assert [rendered_secret(config) for _ in range(2)] == [SECRET, SECRET]
