"""Blocking connections: TLS, SASL, and what is no response (pipeline/README.md rules 5 and 7)."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from kafka_share_proxy.pipeline.kafka.connection import BlockingConnection, LoginRefused
from kafka_share_proxy.pipeline.source.options import Security
from kafka_share_proxy.wire.codec.headers import RequestHeader
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError, UpstreamLost
from kafka_share_proxy.wire.values import Address
from scramp import ScramMechanism

from tests.support.blocking_server import BlockingServer

SECRET = "alice-secret"


def opened(server: BlockingServer, security: Security | None = None) -> BlockingConnection:
    return BlockingConnection(Address("localhost", server.port), security or Security(), "test", response_s=10)


class Login:
    """A server's side of SASL."""

    def __init__(self, mechanism: str) -> None:
        self.mechanism = mechanism
        self._scram: Any = None
        if mechanism != "PLAIN":
            scram = ScramMechanism(mechanism)
            stored = scram.make_auth_info(SECRET)
            self._scram = scram.make_server(lambda _user: stored)

    def __call__(self, header: RequestHeader, request: Any) -> Any:
        if header.key == ApiKey.SASL_HANDSHAKE:
            known = request.mechanism == self.mechanism
            code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return messages.SaslHandshakeResponse(error_code=code, mechanisms=[self.mechanism])
        if header.key == ApiKey.METADATA:
            return messages.MetadataResponse(cluster_id="here")
        return self._token(bytes(request.auth_bytes).decode())

    def _token(self, token: str) -> Any:
        if self._scram is None:
            good = token == f"\0alice\0{SECRET}"
            code = ErrorCode.NONE if good else ErrorCode.SASL_AUTHENTICATION_FAILED
            return messages.SaslAuthenticateResponse(error_code=code, error_message=None if good else "wrong password")
        if self._scram.stage is None:
            self._scram.set_client_first(token)
            return messages.SaslAuthenticateResponse(auth_bytes=self._scram.get_server_first().encode())
        try:
            self._scram.set_client_final(token)
        except Exception:
            return messages.SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
        return messages.SaslAuthenticateResponse(auth_bytes=self._scram.get_server_final().encode())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_is_accepted_and_requests_go_on(mechanism: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    security = Security(mechanism=mechanism, username="alice", password_file=str(file))
    with BlockingServer(Login(mechanism)) as server:
        connection = opened(server, security)
        response = connection.send_request(ApiKey.METADATA, messages.MetadataRequest(topics=[]), 12)
        connection.close()
    assert response.cluster_id == "here"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_a_permanent_error(mechanism: str) -> None:
    security = Security(mechanism=mechanism, username="alice", password="wrong")
    with BlockingServer(Login(mechanism)) as server, pytest.raises(LoginRefused, match="alice"):
        opened(server, security)


def test_a_mechanism_that_is_not_offered_is_reported_with_those_that_are() -> None:
    with BlockingServer(Login("PLAIN")) as server, pytest.raises(LoginRefused, match="it offers PLAIN"):
        opened(server, Security(mechanism="SCRAM-SHA-512", username="alice", password=SECRET))


def test_a_password_file_that_is_not_there_is_named() -> None:
    security = Security(mechanism="PLAIN", username="alice", password_file="/nowhere/password")
    with BlockingServer(Login("PLAIN")) as server, pytest.raises(LoginRefused, match="/nowhere/password"):
        opened(server, security)


def test_tls_is_verified(tmp_path: Path) -> None:
    authority = trustme.CA()
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with BlockingServer(Login("PLAIN"), context) as server:
        connection = opened(server, Security(tls=True, ca=str(trusted)))
        assert connection.version(ApiKey.FETCH, 15) == 15
        connection.close()
        with pytest.raises(UpstreamLost, match="the certificate is not accepted"):
            opened(server, Security(tls=True))


def test_responses_arrive_in_the_order_of_the_requests() -> None:
    names = iter(["one", "two"])
    with BlockingServer(lambda _header, _request: messages.MetadataResponse(cluster_id=next(names))) as server:
        connection = opened(server)
        for _ in range(2):
            connection.send(ApiKey.METADATA, messages.MetadataRequest(topics=[]), 12)
        assert [connection.receive().cluster_id for _ in range(2)] == ["one", "two"]
        connection.close()


def test_a_closed_and_a_refused_connection_are_errors() -> None:
    with BlockingServer(lambda _header, _request: None) as server:
        connection = opened(server)
        with pytest.raises(UpstreamLost, match="closed the connection"):
            connection.send_request(ApiKey.METADATA, messages.MetadataRequest(topics=[]), 12)
        connection.close()
        port = server.port
    with pytest.raises(UpstreamLost, match="refused"):
        BlockingConnection(Address("127.0.0.1", port), Security(), "test")


def test_a_version_without_overlap_is_an_error() -> None:
    with BlockingServer(lambda _header, _request: None) as server:
        connection = opened(server)
        with pytest.raises(RemoteProtocolError, match="has no version of Produce"):
            connection.version(ApiKey.PRODUCE, 9)
        connection.close()
