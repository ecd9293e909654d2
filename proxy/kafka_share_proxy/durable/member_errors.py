"""Errors of a member of the group of proxies."""

from __future__ import annotations

from kafka_share_proxy.brokers.queries import COORDINATOR_ELSEWHERE
from kafka_share_proxy.durable.ownership_rules import GROUP
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, RemoteProtocolError, UpstreamLost

_CONTINUED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})


class NotReadyYet(UpstreamLost):
    """The coordinator of the group is not available yet."""


class NotAMember(ProxyError):
    """This proxy is no longer a member of the group."""


def require_coordinator(code: ErrorCode) -> None:
    """Raise NotReadyYet if the broker that responded with this code is not, or not yet, the coordinator."""
    if code in COORDINATOR_ELSEWHERE:
        raise NotReadyYet(f"the coordinator of group {GROUP}: {code.name}")


def error_of(code: ErrorCode, session_s: float) -> ProxyError:
    """Return the error for the code of a response. `session_s`: setting cluster.session_timeout_s."""
    if code == ErrorCode.FENCED_INSTANCE_ID:
        return NotAMember("a second proxy was started with the same name (cluster.name, or its address)")
    if code in _CONTINUED:
        return NotAMember(f"the group of proxies continued without this one ({code.name})")
    if code == ErrorCode.INVALID_SESSION_TIMEOUT:
        return RemoteProtocolError(
            f"the brokers do not allow cluster.session_timeout_s {session_s:g} (group.min.session.timeout.ms)"
        )
    if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        return RemoteProtocolError(
            f"the proxies in group {GROUP} run with another cluster.mode or other workers than this one"
        )
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return RemoteProtocolError(f"the proxy's own identity needs READ on group {GROUP}")
    return RemoteProtocolError(f"group {GROUP}: {code.name}")
