"""Stock clients get nothing but bootstrap servers."""

from __future__ import annotations

import pytest
from localkafka.front import Front


@pytest.fixture(params=["3.9.1", "4.3.0"])
def front(request: pytest.FixtureRequest) -> Front:
    """A proxy in front of each release: share groups are served by the proxy, or forwarded."""
    front: Front = request.getfixturevalue({"3.9.1": "proxy_39", "4.3.0": "proxy_43"}[request.param])
    return front


@pytest.fixture
def front_39(proxy_39: Front) -> Front:
    return proxy_39
