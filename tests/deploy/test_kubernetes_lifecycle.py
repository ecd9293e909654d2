"""Pods of deploy/kubernetes and of the chart, on a small node in new namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.node_network import run_inside

FOLDER = Path(__file__).parent
LIMIT_S = 300


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize("name", ["kubernetes_node.py", "kubernetes_chart_node.py"])
def test_pods_run_as_the_manifests_define(name: str) -> None:
    status, output = run_inside(FOLDER / name, LIMIT_S)
    assert status == 0, output
