"""Our share consumer and Java's in one group over TLS and SASL, while the sessions of SASL end and are renewed.

With brokers of 4.3.0, and through the proxy in front of 3.9.1, which ends TLS itself. SCRAM-SHA-512 has sessions of 1.5
seconds (KIP-368), so that each member logs in anew several times on the connections over which it holds its locks. Run
by tests/long/run, not by tests/run.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from kafka_share_proxy.client.share_opening import open_share_consumer

from tests.client.test_secure_brokers import (
    EXPIRING,
    LIFETIME_S,
    PASSWORD,
    SECURITY,
    USER,
    Secure,
    from_the_start,
    secure,
)
from tests.long.client_share_members import PARTITIONS, Ours, Produces
from tests.support.raw import Raw
from tests.support.settlements import Ledger
from tests.support.share_members import ShareMember

__all__ = ["secure"]
pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

SECONDS = 6 * LIFETIME_S
STARTED_S = 60.0
LOGINS = {
    "PLAIN": f"{SECURITY}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{SECURITY}.scram.ScramLoginModule",
    EXPIRING: f"{SECURITY}.scram.ScramLoginModule",
}
Fresh = Callable[[str], str]


def java_settings(secure: Secure, mechanism: str) -> dict[str, str]:
    """Return what a Java client needs to be let in."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": secure.authority,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{LOGINS[mechanism]} required username="{USER}" password="{PASSWORD}";',
    }


@pytest.mark.parametrize("mechanism", LOGINS)
async def test_ours_and_java_share_a_topic_over_tls_with_sasl(
    secure: Secure, fresh: Fresh, tmp_path: Path, mechanism: str
) -> None:
    """Each record is settled once, by one of them, and no call fails."""
    topic, group = fresh("topic"), fresh("group")
    with Raw(secure.internal) as raw:
        raw.create_topic(topic, PARTITIONS)
    await trio.to_thread.run_sync(from_the_start, secure, group)
    ledger, produces = Ledger(), Produces(secure.internal, topic)
    java = ShareMember("java", secure.shared, group, topic, tmp_path, java_settings(secure, mechanism))
    ours = Ours("trio", ledger, random.Random(mechanism))
    options: dict[str, Any] = {
        "group": group,
        "topics": [topic],
        "tls": ssl.create_default_context(cadata=secure.authority),
        "sasl": (mechanism, USER, PASSWORD),
        "acknowledgement_mode": "explicit",
        "on_acknowledged": ours.reported,
    }

    def unsettled() -> list[str]:
        java.listen(ledger)
        return list(ledger.never_settled(produces.places))

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(belong, ours, secure.shared, options)
            with trio.fail_after(STARTED_S):
                while not has_settled(ledger, "java"):
                    await produces.until(trio.current_time() + 0.5)
                    java.listen(ledger)
            await produces.until(trio.current_time() + SECONDS / 2)
            half = time.monotonic_ns()
            await produces.until(trio.current_time() + SECONDS / 2)
            with trio.move_on_after(STARTED_S):
                while unsettled():  # noqa: ASYNC110 - of another process
                    await trio.sleep(0.2)
            nursery.cancel_scope.cancel()
    finally:
        java.child.stop()
    java.listen(ledger)
    assert ledger.faults(produces.places) == []
    assert (dict(ledger.errors), dict(ledger.failed), ours.troubles, ours.lost) == ({}, {}, [], 0)
    assert has_settled(ledger, "java", half)
    assert has_settled(ledger, "trio", half)


def has_settled(ledger: Ledger, name: str, since: int = 0) -> bool:
    """Anything later than that (nanoseconds, monotonic)."""
    return any(
        delivery.member == name and delivery.at > since for each in ledger.confirmed.values() for delivery in each
    )


async def belong(member: Ours, bootstrap: str, options: dict[str, Any]) -> None:
    async with open_share_consumer(bootstrap, **options) as consumer:
        await member.run(consumer)
