"""Required content of the manifests of the chart, in the renderings of tests/deploy/values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka_share_proxy.app.settings.config import WORKERS_MAX

from tests.support.helm_charts import CHART, ONE_FILE, RENDERED, documents, one

NAMES = sorted(path.stem for path in RENDERED.glob("*.yaml"))
FLEETS = ("fleet", "fleet_secret", "fleet_tls", "load_balancer", "closed", "one_port")


def read(name: str) -> list[dict[str, Any]]:
    return documents((RENDERED / f"{name}.yaml").read_text(encoding="utf-8"))


def workload(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    (manifest,) = [each for each in manifests if each["kind"] in ("Deployment", "StatefulSet")]
    return manifest


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = workload(read(name))["spec"]["template"]["spec"]
    return spec


def container(name: str) -> dict[str, Any]:
    (only,) = pod(name)["containers"]
    only_container: dict[str, Any] = only
    return only_container


def settings(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(one(read(name), "ConfigMap")["data"]["settings.yaml"])
    return loaded


def service(name: str) -> dict[str, Any]:
    (manifest,) = [each for each in read(name) if each["kind"] == "Service" and each["spec"].get("clusterIP") != "None"]
    return manifest


def test_the_chart_knows_how_many_workers_there_may_be() -> None:
    """`auto` opens the peer ports of two generations of as many."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert schema["properties"]["workers"]["oneOf"][1]["maximum"] == WORKERS_MAX
    helper = (CHART / "templates" / "_settings.tpl").read_text(encoding="utf-8")
    assert f'eq $workers "auto" }}}}{2 * WORKERS_MAX}{{{{' in helper


@pytest.mark.parametrize("name", NAMES)
def test_every_pod_is_restricted(name: str) -> None:
    """The restricted standard for pods, a read-only root, no token of the API, and no variables of Services."""
    spec = pod(name)
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container(name)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert container(name)["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "memory" in container(name)["resources"]["limits"]


@pytest.mark.parametrize("name", NAMES)
def test_probes_use_the_right_endpoint(name: str) -> None:
    """Brokers that are away make a pod unready, and never restart it."""
    probes = {probe: container(name)[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe: get["path"] for probe, get in probes.items()} == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    ports = {port["name"]: port["containerPort"] for port in container(name)["ports"]}
    assert {get["port"] for get in probes.values()} == {"admin"}
    assert settings(name)["admin"].endswith(f":{ports['admin']}")


@pytest.mark.parametrize(("name", "grace_s"), [("single", 50), ("fleet", 40), ("tuned", 50), ("placed", 15)])
def test_the_grace_period_has_room_for_the_hook_and_drain_s(name: str, grace_s: int) -> None:
    assert pod(name)["terminationGracePeriodSeconds"] == grace_s
    hook = container(name).get("lifecycle", {}).get("preStop")
    assert hook == (None if name == "placed" else {"sleep": {"seconds": 5}})


@pytest.mark.parametrize("name", NAMES)
def test_the_service_has_the_ports_of_the_settings(name: str) -> None:
    """Bootstrap, and first_port + node id for each broker: the same numbers from the client to the proxy."""
    ports = {port["name"]: port for port in service(name)["spec"]["ports"]}
    assert settings(name)["listen"].endswith(f":{ports['bootstrap']['port']}")
    brokers = {int(each.removeprefix("broker-")): port for each, port in ports.items() if each.startswith("broker-")}
    assert bool(brokers) is (name != "one_port")
    for node_id, port in brokers.items():
        assert port["port"] == port["targetPort"] == settings(name)["first_port"] + node_id
    assert all(port.get("nodePort", port["port"]) == port["port"] for port in ports.values())


def test_with_one_port_the_certificate_and_the_route_have_the_names_of_all_brokers() -> None:
    names = ["kafka.example", "*.kafka.example"]
    manifests = read("one_port")
    assert set(names) <= set(one(manifests, "Certificate")["spec"]["dnsNames"])
    route = one(manifests, "TLSRoute")["spec"]
    assert route["hostnames"] == names
    backend = {"name": service("one_port")["metadata"]["name"], "port": 9092}
    assert route["rules"] == [{"backendRefs": [backend]}]
    assert [port["port"] for port in service("one_port")["spec"]["ports"]] == [9092]
    assert "first_port" not in settings("one_port")
    opened = one(manifests, "NetworkPolicy")["spec"]["ingress"][0]["ports"]
    assert [each["port"] for each in opened] == [9092]


def test_node_ids_of_brokers_are_a_range_or_a_list() -> None:
    ports = {name: [port["port"] for port in service(name)["spec"]["ports"]] for name in ("load_balancer", "node_port")}
    assert ports == {"load_balancer": [19092, 19193, 19194], "node_port": [30092, 30101, 30102, 30105]}


def test_clients_get_the_name_of_the_service_or_the_one_that_is_set() -> None:
    host = "kafka-share-proxy.kafka.svc.cluster.local"
    assert settings("single")["advertise"] == settings("fleet")["advertise"] == host
    assert settings("load_balancer")["advertise"] == "kafka.example"


@pytest.mark.parametrize("name", FLEETS)
def test_each_proxy_of_a_fleet_has_a_name_that_the_others_resolve(name: str) -> None:
    manifests = read(name)
    stateful = one(manifests, "StatefulSet")
    headless = one(manifests, "Service", stateful["spec"]["serviceName"])
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"] is True
    port = settings(name)["cluster"]["peer"]["listen"].rpartition(":")[2]
    variables = {each["name"]: each for each in container(name)["env"]}
    domain = f"{stateful['spec']['serviceName']}.kafka.svc.cluster.local"
    assert variables["KSP_CLUSTER__PEER__ADVERTISE"]["value"] == f"$(POD_NAME).{domain}:{port}"
    assert list(variables).index("POD_NAME") < list(variables).index("KSP_CLUSTER__PEER__ADVERTISE")
    assert stateful["spec"]["minReadySeconds"] > 0
    assert one(manifests, "PodDisruptionBudget")["spec"]["selector"] == stateful["spec"]["selector"]


def test_a_new_pod_of_a_single_proxy_does_not_take_the_place_of_the_old_one_while_that_serves() -> None:
    """Both have the address of the Service, by which proxies are known if they have no name."""
    assert container("single")["env"] == [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "KSP_CLUSTER__NAME", "value": "$(POD_NAME)"},
    ]


def test_the_secret_of_a_fleet_is_made_and_kept_or_the_one_that_is_named() -> None:
    manifest = one(read("fleet"), "Secret")
    assert manifest["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert [each for each in read("fleet_secret") if each["kind"] == "Secret"] == []
    for name, secret in (("fleet", manifest["metadata"]["name"]), ("fleet_secret", "peers")):
        volumes = {volume["name"]: volume for volume in pod(name)["volumes"]}
        assert volumes["peer"]["secret"] == {"secretName": secret, "defaultMode": 0o440}
        mounts = {mount["name"]: mount["mountPath"] for mount in container(name)["volumeMounts"]}
        assert settings(name)["cluster"]["peer"]["secret_file"] == f"{mounts['peer']}/secret"


@pytest.mark.parametrize("name", NAMES)
def test_files_of_the_settings_are_in_mounted_volumes(name: str) -> None:
    mounts = [mount["mountPath"] for mount in container(name)["volumeMounts"]]
    files = re.findall(r"/etc/kafka-share-proxy/\S+", yaml.safe_dump(settings(name)))
    assert [file for file in files if str(Path(file).parent) not in mounts] == []
    volumes = {volume["name"] for volume in pod(name)["volumes"]}
    assert {mount["name"] for mount in container(name)["volumeMounts"]} == volumes


def test_secrets_are_referred_to() -> None:
    names = [volume["secret"]["secretName"] for volume in pod("sasl")["volumes"] if "secret" in volume]
    assert names == ["clients-tls", "kafka-credentials"]
    (variable,) = [each for each in container("sasl")["env"] if "secretKeyRef" in each.get("valueFrom", {})]
    assert variable["valueFrom"] == {"secretKeyRef": {"name": "kafka-credentials", "key": "server-name"}}


def test_certificates_have_the_names_that_are_dialled() -> None:
    manifests = read("fleet_tls")
    clients = one(manifests, "Certificate", "kafka-share-proxy")["spec"]
    assert settings("fleet_tls")["advertise"] in clients["dnsNames"]
    assert "kafka.example" in clients["dnsNames"]
    peers = one(manifests, "Certificate", "kafka-share-proxy-peer")["spec"]
    assert peers["dnsNames"] == [settings("fleet_tls")["cluster"]["peer"]["tls"]["server_name"]]
    assert {"server auth", "client auth"} <= set(peers["usages"])
    secrets = {volume["secret"]["secretName"] for volume in pod("fleet_tls")["volumes"] if "secret" in volume}
    assert {clients["secretName"], peers["secretName"]} <= secrets
    assert settings("fleet_tls")["client_tls"].keys() == {"cert_file", "key_file", "client_ca_file"}


def test_peer_and_admin_ports_are_closed_to_others() -> None:
    manifests = read("closed")
    policy = one(manifests, "NetworkPolicy")["spec"]
    sources = {port["port"]: rule.get("from") for rule in policy["ingress"] for port in rule["ports"]}
    own = one(manifests, "StatefulSet")["spec"]["selector"]
    assert policy["podSelector"] == own
    assert sources[9191] == [{"podSelector": own}]
    assert sources[8080] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    assert sources[9092] == sources[9093] == [{"namespaceSelector": {"matchLabels": {"team": "orders"}}}]
    alone = one(documents(ONE_FILE.read_text(encoding="utf-8")), "NetworkPolicy")["spec"]
    assert {port["port"] for rule in alone["ingress"] for port in rule["ports"]} == {9092, 9093, 9094, 9095}


def test_metrics_are_scraped_from_every_pod() -> None:
    manifests = read("closed")
    monitor = one(manifests, "ServiceMonitor")
    labels = monitor["spec"]["selector"]["matchLabels"]
    matched = [
        each for each in manifests if each["kind"] == "Service" and labels.items() <= each["metadata"]["labels"].items()
    ]
    assert [each["metadata"]["name"] for each in matched] == ["kafka-share-proxy-pods"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["path"] == "/metrics"
    assert endpoint["port"] in [port["name"] for port in matched[0]["spec"]["ports"]]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_pods_are_spread_over_zones_and_nodes() -> None:
    keys = [each["topologyKey"] for each in pod("fleet")["topologySpreadConstraints"]]
    assert keys == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    assert [each["topologyKey"] for each in pod("placed")["topologySpreadConstraints"]] == ["rack"]


@pytest.mark.parametrize("name", NAMES)
def test_selectors_match_the_pods(name: str) -> None:
    manifests = read(name)
    labels = workload(manifests)["spec"]["template"]["metadata"]["labels"]
    for each in manifests:
        if each["kind"] == "Service":
            assert each["spec"]["selector"].items() <= labels.items()
    assert workload(manifests)["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_other_settings_make_other_pods() -> None:
    sums = [workload(read(name))["spec"]["template"]["metadata"]["annotations"]["checksum/settings"] for name in NAMES]
    assert len(set(sums)) == len(NAMES)


def test_an_update_never_leaves_clients_without_a_proxy() -> None:
    assert workload(read("single"))["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert workload(read("fleet"))["spec"]["updateStrategy"] == {"type": "RollingUpdate"}


def test_what_a_person_places_is_where_it_belongs() -> None:
    spec = pod("placed")
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert spec["serviceAccountName"] == "existing"
    assert spec["priorityClassName"] == "high"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert container("placed")["image"] == "registry.example/kafka-share-proxy:1.2"
    assert {"name": "audit", "mountPath": "/var/audit"} in container("placed")["volumeMounts"]
    assert [each["kind"] for each in read("placed") if each["kind"] == "ServiceAccount"] == []
    assert workload(read("placed"))["spec"]["template"]["metadata"]["labels"]["team"] == "orders"


def test_settings_are_as_they_were_written() -> None:
    """No number is rounded or written with an exponent, and a key without a value keeps its default."""
    text = one(read("tuned"), "ConfigMap")["data"]["settings.yaml"]
    assert "share_cache_bytes: 268435456\n" in text
    assert "group.share.record.lock.duration.ms: 45000\n" in text
    assert settings("tuned")["admin"] == "0.0.0.0:8080"
    assert settings("tuned")["first_port"] == 9093
