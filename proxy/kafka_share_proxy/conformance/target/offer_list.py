"""The list of what the cluster serves and refuses, of the rules and of the actions."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_share_proxy.conformance.judge.rulebook import RULES
from kafka_share_proxy.conformance.target.actions import ACTIONS
from kafka_share_proxy.conformance.target.served_apis import APIS, SASL_VERSIONS
from kafka_share_proxy.wire.definitions import registry

REFUSED = (
    "views with a plan that is not stored (action views/plans): INVALID_TOPIC_EXCEPTION",
    "settings that would have no effect: INVALID_CONFIG",
)


def lines() -> Iterator[str]:
    """Yield the lines."""
    served = dict(sorted({**{int(api.key): api.versions for api in APIS}, **SASL_VERSIONS}.items()))
    yield "Served APIs, with versions:"
    for key, (lowest, highest) in served.items():
        yield f"  {key:3} {registry.API_KEYS[key]} {lowest}-{highest}"
    yield "Refused with UNSUPPORTED_VERSION, or by closing the connection where the response has no field for it:"
    for key, name in registry.API_KEYS.items():
        if key not in served and "broker" in registry.listeners(key):
            yield f"  {key:3} {name}"
    yield "Refused by served APIs:"
    yield from (f"  {text}" for text in REFUSED)
    yield "Rules for clients:"
    for rule in RULES:
        yield f"  {rule.id} ({rule.severity}): {rule.sentence} [{rule.source}]"
    yield "Actions (POST /ACTION, or `do: ACTION` in a scenario):"
    for path, (model, _) in ACTIONS.items():
        yield f"  {path} {' '.join(model.model_fields)}".rstrip()
