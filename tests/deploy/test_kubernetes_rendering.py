"""The rendered files of the repository are what Helm makes of the charts. Helm: see tests/support/helm_charts.py."""

from __future__ import annotations

import re
import shutil
import textwrap
from pathlib import Path

import pytest
import yaml

from tests.deploy.test_kubernetes_sidecar import SHARING_NOTHING
from tests.support.helm_charts import (
    CHART,
    CHECKOUT,
    KUBERNETES,
    VALUES,
    documents,
    helm_path,
    one,
    rendered,
    renderings,
    run_helm,
    user_rendered,
)

BOOTSTRAP = ("--set", "settings.upstream.bootstrap=kafka:9092")
ONE_PORT = r"settings.exposure=sni,settings.advertise=a.b,settings.broker_names=b\{id\}.a.b"


@pytest.fixture(autouse=True)
def helm() -> None:
    if helm_path() is None:
        pytest.skip("no Helm on PATH or in the cache; tests/long/run_kubernetes builds it with Go")


def test_the_rendered_files_are_up_to_date() -> None:
    """`python -m tests.support.helm_charts` writes them again."""
    files = list(renderings())
    assert [path.name for path, text in files if path.read_text(encoding="utf-8") != text] == []
    assert len(files) > 10


def test_the_chart_passes_lint() -> None:
    for values in sorted(VALUES.glob("*.yaml")):
        done = run_helm("lint", "--strict", str(CHART), "--values", str(values))
        assert done.returncode == 0, done.stdout + done.stderr


WRONG = {
    "settings.upstream.bootstrap is missing": (),
    "replicas: 3 needs mode: fleet": (*BOOTSTRAP, "--set", "replicas=3"),
    "no secret may be in the ConfigMap; use password_file": (*BOOTSTRAP, "--set", "settings.upstream.sasl.password=x"),
    "use fleet.existingSecret": (*BOOTSTRAP, "--set", "mode=fleet,settings.cluster.peer.secret=x"),
    "exposure sni needs settings.advertise": (*BOOTSTRAP, "--set", "settings.exposure=sni"),
    "needs settings.broker_names": (*BOOTSTRAP, "--set", "settings.exposure=sni,settings.advertise=a.b"),
    "needs tls.secretName": (*BOOTSTRAP, "--set", ONE_PORT),
    "tlsRoute needs settings.exposure": (*BOOTSTRAP, "--set", "tlsRoute.enabled=true"),
    "needs settings.advertise": (*BOOTSTRAP, "--set", "service.type=LoadBalancer"),
    "which another listener has": (*BOOTSTRAP, "--set", "settings.first_port=8079"),
    "set mode: fleet of the chart": (*BOOTSTRAP, "--set", "settings.cluster.mode=fleet"),
    "tls.certificate.issuerRef is missing": (*BOOTSTRAP, "--set", "tls.certificate.enabled=true"),
    "additional properties 'replica' not allowed": (*BOOTSTRAP, "--set", "replica=3"),
    "value must be one of 'single', 'fleet'": (*BOOTSTRAP, "--set", "mode=many"),
}
"""Part of the error, and the values that cause it."""


@pytest.mark.parametrize("text", WRONG)
def test_values_that_cannot_work_are_refused_with_what_to_do(text: str) -> None:
    done = run_helm("template", "x", str(CHART), "--kube-version", KUBERNETES, *WRONG[text])
    assert done.returncode != 0
    assert text in done.stderr


NOTES = {
    "single": "bootstrap.servers=kafka-share-proxy.kafka.svc.cluster.local:9092",
    "load_balancer": "bootstrap.servers=kafka.example:19092",
    "node_port": "bootstrap.servers=node.example:30092",
}


@pytest.mark.parametrize("name", NOTES)
def test_the_notes_name_the_bootstrap_address(name: str, tmp_path: Path) -> None:
    """Helm prints them only when it installs: here a manifest includes them."""
    chart = shutil.copytree(CHART, tmp_path / "chart")
    included = 'notes: {{ include (print .Template.BasePath "/NOTES.txt") . | quote }}'
    (chart / "templates" / "notes.yaml").write_text(included)
    notes = rendered(chart, "--values", str(VALUES / f"{name}.yaml"), "--show-only", "templates/notes.yaml")
    assert NOTES[name] in notes


def test_a_secret_is_made_at_random() -> None:
    words = ("template", "x", str(CHART), "--kube-version", KUBERNETES, *BOOTSTRAP, "--set", "mode=fleet")
    texts = [run_helm(*words).stdout for _ in range(2)]
    secrets = [line for text in texts for line in text.splitlines() if line.startswith("  secret: ")]
    assert len(set(secrets)) == 2
    assert all(len(secret) > 50 for secret in secrets)


def blocks() -> list[str]:
    """Return the examples of values in the README of the chart."""
    texts = re.findall(r"```yaml\n(.*?)```", (CHART / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    values = [textwrap.dedent(text) for text in texts if re.match(r"\s*(image|mode|settings|replicas):", text)]
    assert len(values) >= 3
    return values


def test_every_example_of_the_readme_renders(tmp_path: Path) -> None:
    for number, text in enumerate(blocks()):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        assert "kind: ConfigMap" in rendered(CHART, *BOOTSTRAP, "--values", str(file))


def test_a_sidecar_without_a_secret_shares_nothing() -> None:
    manifests = documents(user_rendered("--set", "kafka-share-proxy-sidecar.peerSecret="))
    settings = yaml.safe_load(one(manifests, "ConfigMap")["data"]["settings.yaml"])
    assert "cluster" not in settings
    assert {name: settings[name] for name in ("share_groups", "commits")} == SHARING_NOTHING
    pod = one(manifests, "Deployment")["spec"]["template"]["spec"]
    assert "env" not in pod["initContainers"][0]
    assert [volume["name"] for volume in pod["volumes"]] == ["kafka-share-proxy-settings"]


def test_the_sample_of_all_settings_may_be_the_settings(tmp_path: Path) -> None:
    sample = yaml.safe_load((CHECKOUT / "deploy" / "settings.yaml").read_text(encoding="utf-8"))
    sample["upstream"]["bootstrap"] = "kafka:9092"
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"settings": sample}))
    manifests = documents(rendered(CHART, "--values", str(file)))
    found = yaml.safe_load(one(manifests, "ConfigMap")["data"]["settings.yaml"])
    by_the_chart = {"listen", "first_port", "admin", "advertise"}
    assert {key: found[key] for key in sample if key not in by_the_chart} == {
        key: value for key, value in sample.items() if key not in by_the_chart
    }
