"""Suggestions for unknown option names: names of other clients by their meaning, misspellings by their letters."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

_ADVICE_BY_NAME = {
    "group_id": "say group=",
    "bootstrap_servers": "the first argument of open_consumer names the servers",
    "brokers": "the first argument of open_consumer names the servers",
    "enable_auto_commit": "say auto_commit_interval_s=5.0 to have positions committed automatically; "
    "without it the program commits",
    "auto_commit": "say auto_commit_interval_s=5.0 to have positions committed automatically",
    "enable_auto_offset_store": "positions are stored when poll returns records; to choose, pass offsets to commit",
    "isolation_level": "say read_committed=True or leave it out",
    "security_protocol": "say tls= and sasl=",
    "sasl_mechanism": "say sasl=(mechanism, user name, password)",
    "sasl_mechanisms": "say sasl=(mechanism, user name, password)",
    "sasl_username": "say sasl=(mechanism, user name, password)",
    "sasl_password": "say sasl=(mechanism, user name, password)",
    "sasl_plain_username": "say sasl=(mechanism, user name, password)",
    "sasl_plain_password": "say sasl=(mechanism, user name, password)",
    "sasl_jaas_config": "say sasl=(mechanism, user name, password)",
    "ssl": "say tls=True, or tls= with an ssl.SSLContext",
    "partition_assignment_strategy": "say assignors=",
    "assignor": "say assignors=",
    "group_remote_assignor": "say server_assignor=",
    "client_rack": "say rack=",
    "default_api_timeout_ms": "say api_timeout_s=, in seconds",
    "timeout": "say api_timeout_s= or request_timeout_s=; a poll has its own time limit",
    "consumer_timeout_ms": "pass the time limit to poll, in seconds",
    "metadata_recovery_rebootstrap_trigger_ms": "say rebootstrap_after_s=, in seconds",
    "fetch_wait_max_ms": "say fetch_max_wait_s=, in seconds",
    "fetch_message_max_bytes": "say max_partition_fetch_bytes=",
    "queued_max_messages_kbytes": "say buffer_bytes_max=, in bytes",
    "share_acknowledgement_mode": "say acknowledgement_mode=",
    "share_acquire_mode": "say acquire_mode=",
    "interceptor_classes": "say interceptors=",
    "rebalance_listener": "say listener=",
    "on_assign": "say listener=, a RebalanceListener",
    "on_revoke": "say listener=, a RebalanceListener",
    "on_lost": "say listener=, a RebalanceListener",
    "topic": "say topics=, a list",
}
"""Name in other clients, with `_` for `.` -> what to write here."""
_ADVICE_BY_PREFIX = {"ssl_": "say tls=True, or tls= with an ssl.SSLContext", "sasl_oauth": "say sasl="}
SIMILAR_MIN = 0.75
"""Similarity from which on a name counts as a misspelling (difflib.SequenceMatcher.ratio)."""


def option_advice(name: str, known: Sequence[str], elsewhere: Sequence[str] = ()) -> str:
    """Return what to write in place of an unknown option. `elsewhere`: options of the other kind of consumer."""
    plain = name.lower().replace(".", "_").replace("-", "_")
    if plain in _ADVICE_BY_NAME:
        return _ADVICE_BY_NAME[plain]
    if plain in known:
        return f"write {plain}="
    if plain.endswith("_ms") and f"{plain[:-3]}_s" in known:
        return f"say {plain[:-3]}_s=, in seconds"
    for prefix, advice in _ADVICE_BY_PREFIX.items():
        if plain.startswith(prefix):
            return advice
    if name in elsewhere:
        return f"only {'share consumers have' if 'acquire_mode' in elsewhere else 'consumers without locks have'} it"
    (near,) = difflib.get_close_matches(plain, known, 1, SIMILAR_MIN) or ("",)
    return f"did you mean {near!r}?" if near else f"there are {', '.join(known)}"
