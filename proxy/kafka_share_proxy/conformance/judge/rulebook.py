"""All rules of the judge."""

from __future__ import annotations

from kafka_share_proxy.conformance.judge import (
    rules_of_connections,
    rules_of_fields,
    rules_of_members,
    rules_of_producers,
    rules_of_rates,
    rules_of_share_sessions,
)
from kafka_share_proxy.conformance.judge.rule import ClientRule

RULES: tuple[ClientRule, ...] = (
    *rules_of_connections.RULES,
    *rules_of_fields.RULES,
    *rules_of_rates.RULES,
    *rules_of_producers.RULES,
    *rules_of_members.RULES,
    *rules_of_share_sessions.RULES,
)
