"""Requests with extreme values against every handler; `python -m tests.support.extremes` goes on for longer."""

from __future__ import annotations

from collections import Counter

from proxy.apis import handlers, view_handlers
from proxy.share.coordinator import ShareCoordinator
from proxy.share.settings import BrokerShareLimits
from proxy.views.catalog import ViewCatalog
from proxy.wire import registry
from tests.support import extremes

SEEDS = range(40)


def test_every_request_is_answered() -> None:
    """None raises, none goes without an answer, and every API that is served here took part."""
    answered: Counter[str] = Counter()
    for seed in SEEDS:
        answered += extremes.run(seed)
    served = handlers.served(ShareCoordinator(BrokerShareLimits())).keys() | view_handlers.served(ViewCatalog()).keys()
    assert {registry.API_KEYS[key] for key in served} == answered.keys()


def test_a_seed_says_it_all() -> None:
    assert extremes.run(7, 40) == extremes.run(7, 40)
