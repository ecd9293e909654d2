"""Required content of the manifests with a sidecar: those to copy, and those of the library chart."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.brokers import Running
from tests.support.helm_charts import CHECKOUT, RENDERED, documents, one

FILES = {
    "sidecar.yaml": CHECKOUT / "deploy" / "kubernetes" / "sidecar.yaml",
    "job.yaml": CHECKOUT / "deploy" / "kubernetes" / "job.yaml",
    "user.yaml": RENDERED / "sidecar_user" / "user.yaml",
}
KINDS = {"sidecar.yaml": "Deployment", "job.yaml": "Job", "user.yaml": "Deployment"}


def read(name: str) -> list[dict[str, Any]]:
    return documents(FILES[name].read_text(encoding="utf-8"))


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = one(read(name), KINDS[name])["spec"]["template"]["spec"]
    return spec


def settings(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(one(read(name), "ConfigMap")["data"]["settings.yaml"])
    return loaded


@pytest.mark.parametrize("name", FILES)
def test_the_sidecar_is_the_same_in_every_manifest(name: str) -> None:
    assert pod(name)["initContainers"] == pod("sidecar.yaml")["initContainers"]
    assert pod(name)["volumes"] == pod("sidecar.yaml")["volumes"]
    assert pod(name)["enableServiceLinks"] is False


def test_it_is_a_native_sidecar_that_is_ready_before_the_application() -> None:
    (sidecar,) = pod("sidecar.yaml")["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["startupProbe"]["httpGet"]["path"] == "/readyz"
    assert sidecar["livenessProbe"]["httpGet"]["path"] == "/livez"
    security = sidecar["securityContext"]
    assert (security["runAsUser"], security["readOnlyRootFilesystem"]) == (10001, True)
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod("job.yaml")["restartPolicy"] == "Never"


@pytest.mark.parametrize("name", ["sidecar.yaml", "user.yaml"])
def test_clients_are_served_on_the_loopback_interface_only(name: str) -> None:
    assert settings(name)["listen"] == "127.0.0.1:9092"
    assert settings(name)["advertise"] == "localhost"
    (application,) = pod(name)["containers"]
    assert {"name": "BOOTSTRAP_SERVERS", "value": "localhost:9092"} in application["env"]
    ports = {port["name"]: port["containerPort"] for port in pod(name)["initContainers"][0]["ports"]}
    assert settings(name)["admin"] == f"0.0.0.0:{ports['ksp-admin']}"
    assert settings(name)["cluster"]["peer"]["listen"] == f"0.0.0.0:{ports['ksp-peer']}"


def test_every_sidecar_is_scraped_as_a_proxy_of_one_job() -> None:
    text = (CHECKOUT / "deploy" / "kubernetes" / "podmonitor.yaml").read_text(encoding="utf-8")
    (endpoint,) = one(documents(text), "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["path"] == "/metrics"
    assert endpoint["port"] in [port["name"] for port in pod("sidecar.yaml")["initContainers"][0]["ports"]]
    (relabeling,) = endpoint["relabelings"]
    assert relabeling["targetLabel"] == "job"
    assert "kafka-share-proxy" in relabeling["replacement"], "the alert KspDown selects jobs by it"


def test_the_grace_period_has_room_for_the_application_and_the_sidecar() -> None:
    for name in FILES:
        assert pod(name)["terminationGracePeriodSeconds"] >= 2 * settings("sidecar.yaml")["drain_s"]


SHARING_NOTHING = {"share_groups": {"serve": "upstream"}, "commits": {"serve": False}}
"""Settings of sidecars that share nothing, as sidecar.yaml and the library chart have them."""


def test_the_way_to_share_nothing_is_written_in_the_manifest() -> None:
    text = " ".join(FILES["sidecar.yaml"].read_text(encoding="utf-8").replace("#", " ").split())
    assert "`share_groups: {serve: upstream}` and `commits: {serve: false}`" in text


@pytest.mark.broker
def test_sidecars_that_share_nothing_serve_views_each(running: Running, kafka_39: Cluster) -> None:
    fronts = [running.front(kafka_39.bootstrap, dict(SHARING_NOTHING)) for _ in range(2)]
    assert [front.send_request("/readyz/views")[0] for front in fronts] == [True, True]
    assert [front.send_request("/readyz/commits")[0] for front in fronts] == [False, False]
