"""The charts of deploy/helm, rendered by Helm, and their rendered files, which are kept in the repository.

python -m tests.support.helm_charts        # write the rendered files again
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support import kubernetes_tools

CHECKOUT = Path(__file__).resolve().parents[2]
CHARTS = CHECKOUT / "deploy" / "helm"
CHART = CHARTS / "kafka-share-proxy"
VALUES = CHECKOUT / "tests" / "deploy" / "values"
RENDERED = CHECKOUT / "tests" / "deploy" / "rendered"
USER_CHART = CHECKOUT / "tests" / "deploy" / "sidecar_user"
RULES = CHECKOUT / "deploy" / "monitoring" / "rules.yaml"
RULES_OF_CHART = CHART / "files" / "rules.yaml"
"""The same, because a chart contains only files of its folder."""
ONE_FILE = CHECKOUT / "deploy" / "kubernetes" / "kafka-share-proxy.yaml"
ONE_FILE_VALUES = CHECKOUT / "deploy" / "kubernetes" / "values.yaml"
KUBERNETES = "1.33.0"
"""Release that manifests are rendered for; without a cluster Helm has to assume one."""
RUN_S = 60
NAMESPACE = "kafka"
SECRET_ONCE = re.compile(r"(?m)^  secret: \S+$")
"""The secret of a fleet, another one at each rendering."""
ONE_FILE_HEAD = """\
# One kafka-share-proxy in the namespace kafka, for clusters without Helm. Before `kubectl apply -f`:
# 1. upstream.bootstrap in the ConfigMap: HOST:PORT of some brokers
# 2. image of the Deployment
# 3. ports of the Service: broker N has port 9093 + N
# 4. another namespace: replace every `namespace: kafka`, and `.kafka.svc` in `advertise`
# Clients use bootstrap.servers=kafka-share-proxy.kafka.svc.cluster.local:9092. New settings are read by a new pod:
# kubectl rollout restart deployment/kafka-share-proxy. Several proxies and TLS: deploy/helm/kafka-share-proxy.
# Written by python -m tests.support.helm_charts from the chart and values.yaml.
"""


def run_helm(*words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Helm, whose exit status the caller checks."""
    return subprocess.run(
        [str(kubernetes_tools.need("helm")), *words], env={**os.environ, **(environment or {})},
        capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip


def rendered(chart: Path, *words: str, release: str = "kafka-share-proxy") -> str:
    """Return the manifests of a chart, with a fixed text as the secret that is made once."""
    done = run_helm("template", release, str(chart), "--namespace", NAMESPACE, "--kube-version", KUBERNETES, *words)
    assert done.returncode == 0, done.stderr
    return SECRET_ONCE.sub("  secret: bWFkZS1vbmNlLWFuZC1rZXB0LW92ZXItdXBncmFkZXM=", done.stdout)


def renderings() -> Iterator[tuple[Path, str]]:
    """Yield each file of the repository that Helm renders, and its content."""
    for values in sorted(VALUES.glob("*.yaml")):
        yield RENDERED / values.name, rendered(CHART, "--values", str(values))
    yield RENDERED / "sidecar_user" / "user.yaml", user_rendered()
    yield ONE_FILE, ONE_FILE_HEAD + rendered(CHART, "--values", str(ONE_FILE_VALUES))


def user_rendered(*words: str) -> str:
    """Render the chart that uses the sidecar's, with the latter as its dependency."""
    with tempfile.TemporaryDirectory() as folder:
        chart = shutil.copytree(USER_CHART, Path(folder) / USER_CHART.name)
        text = (chart / "Chart.yaml").read_text(encoding="utf-8")
        (chart / "Chart.yaml").write_text(text.replace("file://../../..", f"file://{CHECKOUT}"), encoding="utf-8")
        done = run_helm("dependency", "update", str(chart))
        assert done.returncode == 0, done.stderr
        return rendered(chart, *words, release="orders")


def documents(text: str) -> list[dict[str, Any]]:
    """Return the manifests of a text."""
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


def one(documents_: Sequence[Mapping[str, Any]], kind: str, name: str | None = None) -> dict[str, Any]:
    """Return the only manifest of a kind, or the one with a name."""
    matching = [each for each in documents_ if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    assert len(matching) == 1, f"{len(matching)} of kind {kind}"
    return dict(matching[0])


def main() -> None:
    """Write all rendered files."""
    if kubernetes_tools.installed("helm") is None:
        kubernetes_tools.build("helm")
    RULES_OF_CHART.write_bytes(RULES.read_bytes())
    for path, text in renderings():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(CHECKOUT))


if __name__ == "__main__":
    main()
