"""The rendered files of the repository are what Helm makes of the charts. Helm: see kubernetes_tools.py."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.test_kubernetes_sidecar import SHARING_NOTHING
from tests.support.helm_charts import (
    CHART,
    CHECKOUT,
    KUBERNETES,
    VALUES,
    documents,
    one,
    rendered,
    renderings,
    run_helm,
    user_rendered,
)
from tests.support.kubernetes_tools import need

BOOTSTRAP = ("--set", "settings.upstream.bootstrap=kafka:9092")


@pytest.fixture(autouse=True)
def helm() -> None:
    need("helm")


def test_the_rendered_files_are_up_to_date() -> None:
    """`python -m tests.support.helm_charts` writes them again."""
    files = list(renderings())
    assert [path.name for path, text in files if path.read_text(encoding="utf-8") != text] == []
    assert len(files) > 10


def test_the_chart_passes_lint() -> None:
    for values in sorted(VALUES.glob("*.yaml")):
        done = run_helm("lint", "--strict", str(CHART), "--values", str(values))
        assert done.returncode == 0, done.stdout + done.stderr


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
    settings = yaml.safe_load(one(manifests, "ConfigMap")["data"]["settings.yaml"])
    by_the_chart = {"listen", "first_port", "admin", "advertise"}
    assert {key: value for key, value in settings.items() if key not in by_the_chart} == with_value(
        {key: value for key, value in sample.items() if key not in by_the_chart}
    )


def with_value(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without the keys that have no value."""
    remaining_settings = {key: value for key, value in settings.items() if value is not None}
    return {key: with_value(value) if isinstance(value, dict) else value for key, value in remaining_settings.items()}
