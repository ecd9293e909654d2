"""Errors of codes that the coordinator of the proxies returns."""

import pytest
from kafka_share_proxy.durable.member_errors import NotAMember, NotReadyYet, error_of, require_coordinator
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (ErrorCode.FENCED_INSTANCE_ID, NotAMember, "a second proxy was started with the same name"),
        (ErrorCode.UNKNOWN_MEMBER_ID, NotAMember, "continued without this one (UNKNOWN_MEMBER_ID)"),
        (ErrorCode.ILLEGAL_GENERATION, NotAMember, "continued without this one"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, RemoteProtocolError, "cluster.session_timeout_s 6 (group.min.session"),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, RemoteProtocolError, "another cluster.mode or other workers"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, RemoteProtocolError, "READ on group __proxy_owners"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, RemoteProtocolError, "group __proxy_owners: UNKNOWN_SERVER_ERROR"),
    ],
)
def test_an_error_says_what_the_coordinator_refuses(code: ErrorCode, kind: type[Exception], words: str) -> None:
    error = error_of(code, 6.0)
    assert type(error) is kind
    assert words in str(error)


def test_a_broker_that_is_not_the_coordinator_is_not_ready() -> None:
    for code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        with pytest.raises(NotReadyYet, match=code.name):
            require_coordinator(code)
    require_coordinator(ErrorCode.REBALANCE_IN_PROGRESS)
