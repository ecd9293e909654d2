"""The cluster as a process: ready line, control, reports and exit status."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import trustme
from kafka_share_proxy.conformance.target import running
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.values import Address

from tests.support.blocking_connection import Connection
from tests.support.target_process import CONTROL, target_process

LIMIT_S = 60


def test_a_process_serves_until_it_is_stopped_and_reports(tmp_path: Path) -> None:
    ready_file, junit, report = (tmp_path / name for name in ("ready.json", "junit.xml", "report.json"))
    flags = [*CONTROL, "--topic", "orders:2", "--strict"]
    flags += ["--ready-file", str(ready_file), "--junit", str(junit), "--json", str(report)]
    with target_process(*flags) as target:
        assert json.loads(ready_file.read_text()) == target.ready
        host, _, port = target.bootstrap.partition(":")
        with Connection(Address(host, int(port))) as connection:
            response = connection.send_request(3, 12, messages.MetadataRequest(topics=None))
            assert [topic.name for topic in response.topics] == ["orders"]
            request = messages.HeartbeatRequest(group_id="", generation_id=1, member_id="m")
            with pytest.raises(OSError, match="closed"):
                connection.send_request(12, 4, request)
        with urllib.request.urlopen(f"{target.control}/state") as page:
            assert len(json.load(page)["topics"][0]["partitions"]) == 2
        target.process.send_signal(signal.SIGTERM)
        assert target.process.wait(LIMIT_S) == 1
        assert target.process.stderr is not None
        assert "error group-id-empty: GroupId is ''" in target.process.stderr.read()
    assert 'failures="1"' in junit.read_text()
    rules = [finding["rule"] for finding in json.loads(report.read_text())["findings"]]
    assert rules == ["api-versions-missing", "group-id-empty"]


def test_a_process_ends_with_its_stdin() -> None:
    with target_process("--nodes", "1", "--until-stdin-closes") as target:
        assert list(target.ready["nodes"]) == ["1"]
        assert target.process.stdin is not None
        target.process.stdin.close()
        assert target.process.wait(LIMIT_S) == 0


def run(*flags: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "kafka_share_proxy", "conformance", "target", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return done.returncode, done.stderr


def test_mistakes_end_the_process_with_status_2(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("topics: [{name: 'a b'}]")
    status, text = run("--scenario", str(wrong))
    assert status == 2
    assert "Topic name is invalid" in text
    assert "Traceback" not in text


def test_tls_needs_a_certificate_that_can_be_read(tmp_path: Path) -> None:
    certificate = trustme.CA().issue_cert("localhost")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(each.bytes() for each in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(str(key))
    assert running.tls_context(None, None) is None
    assert running.tls_context(str(chain), str(key)) is not None
    with pytest.raises(running.TargetMistake, match="--tls-key needs --tls-cert"):
        running.tls_context(None, str(key))
    with pytest.raises(running.TargetMistake, match="No such file"):
        running.tls_context(str(tmp_path / "none.pem"), None)
