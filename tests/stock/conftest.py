"""Stock clients get nothing but bootstrap servers."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import VIEWS, Running


@pytest.fixture(params=["3.9.1", "4.3.0"])
def front(request: pytest.FixtureRequest) -> Front:
    """A proxy in front of each release: share groups are served by the proxy, or forwarded."""
    front: Front = request.getfixturevalue({"3.9.1": "proxy_39", "4.3.0": "proxy_43"}[request.param])
    return front


@pytest.fixture
def front_39(proxy_39: Front) -> Front:
    return proxy_39


@pytest.fixture(scope="session")
def views_39(_session: Running, kafka_39: Cluster) -> Front:
    """A proxy in front of `kafka_39` whose views grow within a second."""
    return _session.front(kafka_39.bootstrap, VIEWS)


@pytest.fixture(scope="session")
def views_43(_session: Running, kafka_43: Cluster) -> Front:
    """Same as `views_39`, with `kafka_43`."""
    return _session.front(kafka_43.bootstrap, VIEWS)
