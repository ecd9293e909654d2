"""Command `conformance run` over TLS and SASL, against the cluster in one process."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import trustme
from kafka_share_proxy.app import cli
from kafka_share_proxy.conformance.cluster_thread import KafkaCluster, running_cluster
from kafka_share_proxy.conformance.target.server import TargetOptions
from typer.testing import CliRunner

HOST = "127.0.0.1"
SECRET = "of alice alone"
CASES = ("produce-fetch.fetch.from-the-start", "groups.classic.first-generation", "share-groups.sessions.reopened")
PASSED = ["4", "-", "-", "-"]
"""Passed, failed, skipped, differing. The last pattern matches two cases."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Two authorities, of which the first signs the certificate, and two passwords, of which the first is right."""
    folder = tmp_path_factory.mktemp("secured")
    paths = {name: folder / name for name in ("right-ca", "wrong-ca", "pair", "right-password", "wrong-password")}
    right, wrong = trustme.CA(), trustme.CA()
    right.cert_pem.write_to_path(str(paths["right-ca"]))
    wrong.cert_pem.write_to_path(str(paths["wrong-ca"]))
    right.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(str(paths["pair"]))
    paths["right-password"].write_text(SECRET + "\n")
    paths["wrong-password"].write_text("a guess\n")
    return paths


@pytest.fixture(scope="module")
def server_tls(files: Mapping[str, Path]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files["pair"])
    return context


@pytest.fixture(scope="module")
def plain() -> Iterator[KafkaCluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def with_tls(server_tls: ssl.SSLContext) -> Iterator[KafkaCluster]:
    with running_cluster(TargetOptions(tls=server_tls)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def with_sasl() -> Iterator[KafkaCluster]:
    with running_cluster(TargetOptions(users={"alice": SECRET})) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def with_both(server_tls: ssl.SSLContext) -> Iterator[KafkaCluster]:
    with running_cluster(TargetOptions(tls=server_tls, users={"alice": SECRET})) as cluster:
        yield cluster


def run(cluster: KafkaCluster, *flags: object) -> tuple[int, str]:
    words = ["conformance", "run", "--bootstrap", cluster.bootstrap, *map(str, flags)]
    result = CliRunner().invoke(cli.app, [*words, *(word for case in CASES for word in ("--only", case))])
    return result.exit_code, result.output


def passed(output: str) -> list[str]:
    """Return passed, failed, skipped and differing cases of all suites, from the last row of the table."""
    (row,) = (line for line in output.splitlines() if line.startswith("all "))
    return row.split()[1:]


def login(password: Path, mechanism: str = "PLAIN") -> tuple[object, ...]:
    return "--sasl-mechanism", mechanism, "--sasl-username", "alice", "--sasl-password-file", password


def test_cases_pass_over_tls(with_tls: KafkaCluster, files: Mapping[str, Path]) -> None:
    status, output = run(with_tls, "--tls", "--tls-ca", files["right-ca"])
    assert (status, passed(output)) == (0, PASSED)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_cases_pass_after_a_login(with_sasl: KafkaCluster, files: Mapping[str, Path], mechanism: str) -> None:
    status, output = run(with_sasl, *login(files["right-password"], mechanism))
    assert (status, passed(output)) == (0, PASSED)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_cases_pass_after_a_login_over_tls(with_both: KafkaCluster, files: Mapping[str, Path], mechanism: str) -> None:
    tls = ("--tls", "--tls-ca", files["right-ca"])
    status, output = run(with_both, *tls, *login(files["right-password"], mechanism))
    assert (status, passed(output)) == (0, PASSED)


def only_line(cluster: KafkaCluster, *flags: object) -> str:
    """Return the only line that is printed by a run that fails before its first case."""
    status, output = run(cluster, *flags)
    (line,) = (line for line in output.splitlines() if line.strip())
    assert status == 1
    assert line.startswith("kafka-share-proxy: ")
    assert any(address in line for address in cluster.bootstrap.split(","))
    return line


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_one_line(with_sasl: KafkaCluster, files: Mapping[str, Path], mechanism: str) -> None:
    line = only_line(with_sasl, *login(files["wrong-password"], mechanism))
    assert "refuses 'alice': Authentication failed" in line


@pytest.mark.parametrize("flags", [("--tls-ca", "wrong-ca"), ()])
def test_a_wrong_authority_is_one_line(
    with_tls: KafkaCluster, files: Mapping[str, Path], flags: tuple[str, ...]
) -> None:
    line = only_line(with_tls, "--tls", *(files.get(flag, flag) for flag in flags))
    assert "the certificate is not accepted: unable to get local issuer certificate (--tls-ca)" in line


def test_missing_flags_are_named(with_tls: KafkaCluster, with_sasl: KafkaCluster) -> None:
    for cluster in (with_tls, with_sasl):
        assert "may require TLS (--tls) or a login (--sasl-mechanism)" in only_line(cluster)


def test_flags_that_the_cluster_does_not_need_are_named(plain: KafkaCluster, files: Mapping[str, Path]) -> None:
    assert "its port seems to be without TLS (--no-tls)" in only_line(plain, "--tls", "--tls-ca", files["right-ca"])
    assert "has no SASL at this port" in only_line(plain, *login(files["right-password"]))
