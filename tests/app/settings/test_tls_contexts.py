"""TLS contexts from settings, and files that are not what they should be."""

import ssl
from pathlib import Path

import pytest
import trustme
from kafka_share_proxy.app.settings import tls_contexts
from kafka_share_proxy.app.settings.config import ClientTls, PeerTls, UpstreamTls
from kafka_share_proxy.feature.errors import ConfigError


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A certificate authority, a certificate with its key, and a file that is neither."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("proxy.example")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(folder / "cert.pem"), append=True)
    (folder / "text.pem").write_text("no certificate")
    return {path.stem: str(path) for path in Path(folder).iterdir()}


def test_without_tls_settings_connections_are_plain_text() -> None:
    """No section, no TLS."""
    assert tls_contexts.towards_clients(ClientTls()) is None
    assert tls_contexts.towards_brokers(UpstreamTls()) is None


def test_clients_need_a_certificate_only_if_an_authority_is_set(files: dict[str, str]) -> None:
    """client_ca_file makes a certificate mandatory."""
    plain = tls_contexts.towards_clients(ClientTls(cert_file=files["cert"], key_file=files["key"]))
    strict = tls_contexts.towards_clients(
        ClientTls(cert_file=files["cert"], key_file=files["key"], client_ca_file=files["ca"])
    )
    assert (plain.current.verify_mode, strict.current.verify_mode) == (ssl.CERT_NONE, ssl.CERT_REQUIRED)


def test_brokers_are_verified_by_default(files: dict[str, str]) -> None:
    """With a named authority only that one counts; verify: false is possible, and explicit."""
    private_ca = tls_contexts.towards_brokers(UpstreamTls(ca_file=files["ca"]))
    assert (private_ca.current.verify_mode, private_ca.current.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(private_ca.current.get_ca_certs()) == 1
    system = tls_contexts.towards_brokers(UpstreamTls(enabled=True))
    assert system.current.verify_mode == ssl.CERT_REQUIRED
    loose = tls_contexts.towards_brokers(UpstreamTls(verify=False, cert_file=files["cert"], key_file=files["key"]))
    assert (loose.current.verify_mode, loose.current.check_hostname) == (ssl.CERT_NONE, False)


def test_files_that_hold_something_else_are_named(files: dict[str, str]) -> None:
    """The setting and the file are in the text."""
    with pytest.raises(ConfigError, match=r"client_tls\.cert_file: .*text\.pem"):
        tls_contexts.towards_clients(ClientTls(cert_file=files["text"], key_file=files["key"]))
    with pytest.raises(ConfigError, match=r"upstream\.tls\.ca_file: .*text\.pem holds no certificates"):
        tls_contexts.towards_brokers(UpstreamTls(ca_file=files["text"]))


def test_a_key_with_a_passphrase_is_refused_without_a_prompt(tmp_path: Path, files: dict[str, str]) -> None:
    """A service that waits for a terminal hangs for ever."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(Path(files["key"]).read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigError, match="has a passphrase"):
        tls_contexts.towards_clients(ClientTls(cert_file=files["cert"], key_file=str(locked)))


def test_proxies_of_a_fleet_verify_each_other_by_the_named_authority_alone(files: dict[str, str]) -> None:
    """The dialling side verifies the configured host or name, the other side accepts any certificate of the fleet."""
    assert tls_contexts.between_proxies(PeerTls()) is None
    pair = {"cert_file": files["cert"], "key_file": files["key"]}
    tls = tls_contexts.between_proxies(PeerTls(**pair, ca_file=files["ca"], server_name="proxy.example"))
    assert (tls.dials.current.check_hostname, tls.dialled.current.check_hostname, tls.server_name) == (
        True,
        False,
        "proxy.example",
    )
    for side in (tls.dials.current, tls.dialled.current):
        assert side.verify_mode == ssl.CERT_REQUIRED
        assert len(side.get_ca_certs()) == 1
    with pytest.raises(ConfigError, match=r"cluster\.peer\.tls\.ca_file: .*text\.pem holds no certificates"):
        tls_contexts.between_proxies(PeerTls(**pair, ca_file=files["text"]))
