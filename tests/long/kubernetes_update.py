"""Updates of a fleet of three and of a single proxy, as the chart has them, under load: kubernetes_update_node.py.

    tests/long/run_kubernetes       # or this file alone: tests/run tests/long/kubernetes_update.py -s

Three minutes; needs namespaces (root, or user namespaces) and iproute2; says what is missing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.node_network import run_inside

TESTS = Path(__file__).with_name("kubernetes_update_node.py")
LIMIT_S = 450


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 30)
def test_updates_under_load() -> None:
    status, output = run_inside(TESTS, LIMIT_S)
    print(output)
    assert status == 0
