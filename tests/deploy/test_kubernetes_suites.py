"""The suites of the chart (deploy/helm/kafka-share-proxy/tests), run by helm-unittest: see kubernetes_tools.py."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.helm_charts import CHART, RULES, RULES_OF_CHART
from tests.support.kubernetes_tools import need

RUN_S = 60
SUITES = sorted((CHART / "tests").glob("*_test.yaml"))
MUTATIONS = {
    "_pod.tpl": ("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
    "_settings.tpl": ("settings.upstream.bootstrap is missing", "settings are missing"),
    "NOTES.txt": ("bootstrap.servers=", "bootstrap="),
    "certificates.yaml": ("server auth, client auth", "server auth"),
    "networkpolicy.yaml": ("{{- if $ports.peer }}", "{{- if true }}"),
    "peer-secret.yaml": ("helm.sh/resource-policy: keep", "helm.sh/resource-policy: none"),
    "poddisruptionbudget.yaml": ('and (eq .Values.mode "fleet")', "and true"),
    "prometheusrule.yaml": ("files/rules.yaml", "files/none.yaml"),
    "service.yaml": ("publishNotReadyAddresses: true", "publishNotReadyAddresses: false"),
    "servicemonitor.yaml": ("targetLabel: job", "targetLabel: instance"),
    "statefulset.yaml": ("podManagementPolicy: Parallel", "podManagementPolicy: OrderedReady"),
    "deployment.yaml": ("maxUnavailable: 0", "maxUnavailable: 1"),
}
"""Templates, each with a text and a mistake that replaces it."""


def run(chart: Path) -> subprocess.CompletedProcess[str]:
    command = [str(need("helm-unittest")), str(chart)]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)


def test_the_manifests_have_what_they_must_have() -> None:
    done = run(CHART)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(SUITES) > 5
    passed = re.findall(r"Test Suites: (\d+) passed, (\d+) total", done.stdout)
    assert passed == [(str(len(SUITES)), str(len(SUITES)))], done.stdout


@pytest.mark.parametrize("template", MUTATIONS)
def test_a_mistake_in_a_template_is_noticed(template: str, tmp_path: Path) -> None:
    need("helm-unittest")
    chart = shutil.copytree(CHART, tmp_path / "chart")
    path, (text, mistake) = chart / "templates" / template, MUTATIONS[template]
    content = path.read_text(encoding="utf-8")
    assert text in content
    path.write_text(content.replace(text, mistake), encoding="utf-8")
    done = run(chart)
    assert done.returncode != 0, done.stdout


def test_the_chart_has_the_rules_of_the_repository() -> None:
    """`python -m tests.support.helm_charts` copies them."""
    assert RULES_OF_CHART.read_bytes() == RULES.read_bytes()
