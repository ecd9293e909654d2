"""Runs named cases against a broker with seeded faults: each must fail with its fault, and pass without.

A failed set-up catches nothing: the rule of the case was not tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace as changed
from functools import partial
from unittest import mock

import trio
from kafka_share_proxy.conformance.suite import case_run, connection, share_members
from kafka_share_proxy.conformance.suite.all_cases import ALL_CASES
from kafka_share_proxy.conformance.suite.capabilities import Capabilities, discover
from kafka_share_proxy.conformance.suite.cases import Case
from kafka_share_proxy.conformance.suite.cluster_under_test import ClusterUnderTest
from kafka_share_proxy.conformance.suite.dialling import Dialling
from kafka_share_proxy.conformance.suite.exchanges import Trail
from kafka_share_proxy.conformance.suite.outcomes import SET_UP, Outcome, Status
from kafka_share_proxy.conformance.suite.runner import run_case
from kafka_share_proxy.wire.values import Address

from tests.support.faulty_broker import Fault, FaultyBroker
from tests.support.raw import address

CONCURRENT = 6
WAITS = (
    (case_run, "AWAIT_S", 8.0),
    (connection, "RESPONSE_S", 8.0),
    (connection, "CLOSE_S", 4.0),
    (share_members, "TAKE_FETCHES", 12),
)


def assert_caught(bootstrap: str, faults: Sequence[Fault]) -> None:
    """Check that each case passes at a broker without a fault, and fails with the fault that names it."""
    cases = {case.id: case for case in ALL_CASES.select()}
    unknown = [fault.case_id for fault in faults if fault.case_id not in cases]
    assert unknown == []
    with _short_waits():
        outcomes = trio.run(partial(_run, bootstrap, faults, cases))
    not_passed = {f"{key}": f"{o.reason} {o.expected} {o.actual}" for key, o in outcomes.items() if _is_wrong(key, o)}
    assert not_passed == {}, not_passed


def _short_waits() -> ExitStack:
    """Bound the waits of cases: with a fault they wait for what never happens."""
    stack = ExitStack()
    for module, name, value in WAITS:
        stack.enter_context(mock.patch.object(module, name, value))
    return stack


def _is_wrong(key: str, outcome: Outcome) -> bool:
    if key.startswith("without "):
        return outcome.status is not Status.PASSED
    return outcome.status is not Status.FAILED or outcome.reason == SET_UP


async def _run(bootstrap: str, faults: Sequence[Fault], cases: dict[str, Case]) -> dict[str, Outcome]:
    cluster, capabilities = await discover(Dialling([address(each) for each in bootstrap.split(",")]))
    brokers = await _brokers(cluster)
    outcomes: dict[str, Outcome] = {}
    slots = trio.Semaphore(CONCURRENT)
    jobs = [(f"without {name}", None, cases[name]) for name in dict.fromkeys(each.case_id for each in faults)]
    jobs += [(each.id, each, cases[each.case_id]) for each in faults]  # type: ignore[misc]

    async def run_one(key: str, fault: Fault | None, case: Case) -> None:
        async with slots, AsyncExitStack() as stack:
            served: dict[Address, Address] = {}
            for each in brokers:
                await stack.enter_async_context(FaultyBroker(each, fault, served).serving())
            own = changed(cluster, dialling=Dialling(list(served.values())))
            outcomes[key] = await _outcome(case, own, capabilities)

    async with cluster.cleaned_up(), trio.open_nursery() as nursery:
        for job in jobs:
            nursery.start_soon(run_one, *job)
    return outcomes


async def _brokers(cluster: ClusterUnderTest) -> list[Address]:
    connection = await cluster.dialling.connect_bootstrap(Trail())
    brokers = await cluster.brokers(connection)
    await connection.aclose()
    return list(brokers.values())


async def _outcome(case: Case, cluster: ClusterUnderTest, capabilities: Capabilities) -> Outcome:
    return await run_case(changed(case, differs={}), cluster, capabilities)
