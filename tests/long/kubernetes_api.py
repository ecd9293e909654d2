"""The chart and the manifests in a real API server of Kubernetes (tests/support/control_plane.py): no pod runs.

    tests/long/run_kubernetes       # or this file alone: tests/run tests/long/kubernetes_api.py

Builds the programs with Go if they are missing. Namespaces enforce the restricted standard for pods.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import custom_kinds
from tests.support.control_plane import ControlPlane
from tests.support.helm_charts import CHART, CHECKOUT, ONE_FILE, RENDERED, VALUES, documents
from tests.support.kubernetes_tools import need, need_built

NAME = "kafka-share-proxy"
FLEET = ("--set", "mode=fleet,replicas=3,settings.upstream.bootstrap=kafka:9092")
STANDARD = "pod-security.kubernetes.io"
PRIORITY = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    for name in ("helm", "kubectl", "etcd", "kube-apiserver"):
        need_built(name)
    running = ControlPlane(tmp_path_factory.mktemp("cluster"))
    try:
        custom_kinds.define(running)
        running.kubectl("apply", "--filename", "-", text=PRIORITY)
        yield running
    finally:
        running.close()


def namespace(cluster: ControlPlane, name: str) -> str:
    """Create a namespace that refuses pods below the restricted standard, and warns about their templates."""
    cluster.kubectl("create", "namespace", name)
    labels = [f"{STANDARD}/{mode}=restricted" for mode in ("enforce", "warn")]
    cluster.kubectl("label", "namespace", name, *labels)
    cluster.kubectl("--namespace", name, "create", "serviceaccount", "existing")
    return name


def install(cluster: ControlPlane, where: str, *words: str, verb: str = "install") -> str:
    return cluster.helm(verb, NAME, str(CHART), "--namespace", where, *words)


def lost(manifest: Any, stored: Any, path: str = "") -> list[str]:
    """Return the fields of a manifest that the stored object does not have. Quantities may be written otherwise."""
    if isinstance(manifest, Mapping) and isinstance(stored, Mapping):
        return [each for key in manifest for each in lost(manifest[key], stored.get(key), f"{path}.{key}")]
    if isinstance(manifest, list) and isinstance(stored, list) and len(manifest) == len(stored):
        return [
            each for i, pair in enumerate(zip(manifest, stored, strict=True)) for each in lost(*pair, f"{path}[{i}]")
        ]
    is_empty = not manifest and not isinstance(manifest, (bool, int)) and stored is None  # affinity: {}
    return [] if manifest == stored or is_empty else [f"{path}: {manifest!r} is {stored!r}"]


def test_a_lost_field_is_noticed() -> None:
    assert lost({"a": [{"b": 1, "c": {}}]}, {"a": [{"d": 2}], "e": 3}) == [".a[0].b: 1 is None"]
    assert lost({"a": [1]}, {"a": []}) == [".a: [1] is []"]


@pytest.mark.parametrize("values", sorted(VALUES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_values_file_is_installed_as_it_is(cluster: ControlPlane, values: Path) -> None:
    """No field is unknown to the API server, and none is lost. Helm must not print a warning of it."""
    where = namespace(cluster, f"values-{values.stem.replace('_', '-')}")
    notes = install(cluster, where, "--values", str(values))
    assert "bootstrap.servers=" in notes
    manifests = documents(cluster.helm("get", "manifest", NAME, "--namespace", where))
    assert len(manifests) >= 4
    for manifest in manifests:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        stored = cluster.get("--namespace", where, kind, name)
        assert lost(manifest, stored) == [], kind
    cluster.helm("uninstall", NAME, "--namespace", where)


@pytest.mark.parametrize("name", sorted(path.stem for path in VALUES.glob("*.yaml")))
def test_every_pod_is_admitted_by_the_restricted_standard(cluster: ControlPlane, name: str) -> None:
    where = namespace(cluster, f"pods-{name.replace('_', '-')}")
    manifests = documents((RENDERED / f"{name}.yaml").read_text(encoding="utf-8"))
    (workload,) = [each for each in manifests if each["kind"] in ("Deployment", "StatefulSet")]
    spec = workload["spec"]["template"]["spec"] | {"serviceAccountName": "existing"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
    created = cluster.kubectl("--namespace", where, "create", "--filename", "-", text=json.dumps(pod))
    assert created == "pod/pod created\n"
    privileged = json.loads(json.dumps(pod)) | {"metadata": {"name": "privileged"}}
    privileged["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    done = cluster.run(
        str(need("kubectl")), "--namespace", where, "create", "--filename", "-", text=json.dumps(privileged)
    )
    assert "violates PodSecurity" in done.stderr


def secret(cluster: ControlPlane, where: str) -> str:
    value: str = cluster.get("--namespace", where, "secret", f"{NAME}-peer")["data"]["secret"]
    return value


def generation(cluster: ControlPlane, where: str) -> int:
    """Return the number of the version of the StatefulSet: a new one replaces its pods."""
    number: int = cluster.get("--namespace", where, "statefulset", NAME)["metadata"]["generation"]
    return number


def test_the_secret_of_a_fleet_survives_upgrades_and_a_removal(cluster: ControlPlane) -> None:
    where = namespace(cluster, "secrets")
    install(cluster, where, *FLEET)
    created, before = secret(cluster, where), generation(cluster, where)
    install(cluster, where, *FLEET, verb="upgrade")
    assert (secret(cluster, where), generation(cluster, where)) == (created, before), "nothing has changed"
    install(cluster, where, *FLEET, "--set", "settings.drain_s=20", verb="upgrade")
    assert generation(cluster, where) == before + 1
    cluster.helm("rollback", NAME, "1", "--namespace", where)
    assert (secret(cluster, where), generation(cluster, where)) == (created, before + 2)
    cluster.helm("uninstall", NAME, "--namespace", where)
    assert secret(cluster, where) == created
    install(cluster, where, *FLEET)
    assert secret(cluster, where) == created


def test_settings_without_a_restart_change_the_config_map_only(cluster: ControlPlane) -> None:
    where = namespace(cluster, "settings")
    words = (*FLEET, "--set", "restartOnSettingsChange=false")
    install(cluster, where, *words)
    before = generation(cluster, where)
    install(cluster, where, *words, "--set", "settings.log_level=debug", verb="upgrade")
    settings = yaml.safe_load(cluster.get("--namespace", where, "configmap", NAME)["data"]["settings.yaml"])
    assert settings["log_level"] == "debug"
    assert generation(cluster, where) == before


def test_the_manifests_without_helm_are_applied(cluster: ControlPlane) -> None:
    """The namespace and the Secret are made first, as the comments of the files say."""
    cluster.kubectl("create", "namespace", "kafka")
    applied = cluster.kubectl("apply", "--filename", str(ONE_FILE))
    assert applied.count("created") == len(documents(ONE_FILE.read_text(encoding="utf-8")))
    cluster.kubectl("create", "secret", "generic", f"{NAME}-peer", "--from-literal=secret=of-the-sidecars-of-a-test")
    for name in ("sidecar.yaml", "job.yaml", "podmonitor.yaml"):
        path = CHECKOUT / "deploy" / "kubernetes" / name
        assert "created" in cluster.kubectl("apply", "--filename", str(path))
        for manifest in documents(path.read_text(encoding="utf-8")):
            stored = cluster.get(manifest["kind"], manifest["metadata"]["name"])
            assert lost(manifest, stored) == []
