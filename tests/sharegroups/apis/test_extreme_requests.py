"""Requests with extreme values against every handler; `python -m tests.support.extremes` continues for longer."""

from __future__ import annotations

from collections import Counter

from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.views import view_apis
from kafka_share_proxy.wire.definitions import registry

from tests.support import extremes, ports, view_broker

SEEDS = range(16)


def test_every_request_gets_a_response() -> None:
    """None raises, none goes without a response, and every API that is served here took part."""
    responded: Counter[str] = Counter()
    for seed in SEEDS:
        responded += extremes.run(seed)
    served = share_group_apis.served(ports.World().services).keys() | view_apis.served(view_broker.World().views).keys()
    assert {registry.API_KEYS[key] for key in served} == responded.keys()


def test_a_seed_says_it_all() -> None:
    assert extremes.run(7, 40) == extremes.run(7, 40)
