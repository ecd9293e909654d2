"""The chart in a cluster with a real control plane and a small kubelet: kubernetes_cluster_node.py.

    tests/long/run_kubernetes       # or this file alone: tests/run tests/long/kubernetes_cluster.py -s

Builds the programs with Go if they are missing. Needs namespaces (root, or user namespaces) and iproute2.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kubernetes_tools import PACKAGES, need_built
from tests.support.node_network import run_inside

TESTS = Path(__file__).with_name("kubernetes_cluster_node.py")
LIMIT_S = 400


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 30)
def test_the_chart_in_a_cluster() -> None:
    for name in PACKAGES:
        need_built(name)
    status, output = run_inside(TESTS, LIMIT_S)
    print(output)
    assert status == 0, output
