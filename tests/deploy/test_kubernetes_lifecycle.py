"""The pods of deploy/kubernetes from their start to their end, in new namespaces (kubernetes_node.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.node_network import run_inside

TESTS = Path(__file__).with_name("kubernetes_node.py")
LIMIT_S = 300


@pytest.mark.broker
@pytest.mark.slow
def test_pods_live_as_the_manifests_say() -> None:
    status, output = run_inside(TESTS, LIMIT_S)
    assert status == 0, output
