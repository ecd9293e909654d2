"""The manifests of the repository are valid for three releases of Kubernetes, and their settings for the proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka_share_proxy.app.settings import config_loading
from kafka_share_proxy.feature.errors import ConfigError

from tests.support.helm_charts import CHECKOUT, ONE_FILE, RENDERED, VALUES, documents

RELEASES = ("1.30", "1.33", "1.37")
"""The oldest release that the charts allow, and later ones."""
CUSTOM = {"monitoring.coreos.com/v1", "cert-manager.io/v1", "gateway.networking.k8s.io/v1alpha2"}
"""API groups of operators, whose schemas are not Kubernetes' own."""
KUBERNETES = CHECKOUT / "deploy" / "kubernetes"
FILES = sorted([*RENDERED.rglob("*.yaml"), ONE_FILE, KUBERNETES / "sidecar.yaml", KUBERNETES / "job.yaml"])
FILES_OF_PODS = "/etc/kafka-share-proxy/"


def names(path: Path) -> str:
    return path.relative_to(CHECKOUT).as_posix()


def read(path: Path) -> list[dict[str, Any]]:
    return documents(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("path", FILES, ids=names)
def test_every_manifest_is_valid(path: Path, release: str) -> None:
    import kubernetes_validate  # takes seconds, which every process of a whole run would need

    checked = [document for document in read(path) if document["apiVersion"] not in CUSTOM]
    for document in checked:
        kubernetes_validate.validate(document, release, strict=True)
    assert checked


def test_an_invalid_manifest_is_noticed() -> None:
    import kubernetes_validate

    (document,) = [each for each in read(ONE_FILE) if each["kind"] == "Deployment"]
    document["spec"]["template"]["spec"]["containers"][0]["imagePolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, RELEASES[0], strict=True)


def settings_of(path: Path) -> list[dict[str, Any]]:
    return [yaml.safe_load(each["data"]["settings.yaml"]) for each in read(path) if each["kind"] == "ConfigMap"]


@pytest.mark.parametrize("path", [path for path in FILES if settings_of(path)], ids=names)
def test_the_proxy_accepts_the_settings_of_every_manifest(path: Path, tmp_path: Path) -> None:
    """Files of Secrets are not there: a mistake that names one of them only says so."""
    (settings,) = settings_of(path)
    file = tmp_path / "settings.yaml"
    file.write_text(yaml.safe_dump(settings))
    # A fleet's address is in the environment of its pods.
    environment = {"KSP_CLUSTER__PEER__ADVERTISE": "pod:9191"} if "fleet" in str(settings.get("cluster")) else {}
    try:
        config_loading.load({}, environment, str(file))
    except ConfigError as error:
        lines = str(error).splitlines()[1:]
        assert [line for line in lines if FILES_OF_PODS not in line and "/var/audit" not in line] == []


def test_each_values_file_has_its_rendering() -> None:
    assert {path.name for path in VALUES.glob("*.yaml")} == {path.name for path in RENDERED.glob("*.yaml")}
    assert len(list(VALUES.glob("*.yaml"))) >= 10
