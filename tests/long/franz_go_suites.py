"""All tests of franz-go's client at the command `conformance target`.

    tests/run tests/long/franz_go_suites.py

Two minutes on two cores. Needs Go.
"""

from __future__ import annotations

import os
import re
import subprocess

from tests.conformance.test_clients_of_other_languages import SUITE_RECORDS, own_suites
from tests.support.programs import CLIENTS, need
from tests.support.target_process import CONTROL, target_process

NEED_INTERNAL_TOPICS = {"Test848RegexBrokerResolves", "TestConsumeRegex", "TestConsumeRegexShareSkipsInternal"}
"""Tests that consume from `__consumer_offsets`, which the target does not have (conformance/README.md rule 13)."""
LIMIT_S = 450


def test_franz_go_passes_its_tests_but_for_internal_topics() -> None:
    where = [need("go"), "list", "-f", "{{.Dir}}", "github.com/twmb/franz-go/pkg/kgo"]
    folder = subprocess.run(where, cwd=CLIENTS / "franzgo", capture_output=True, text=True, check=True).stdout.strip()
    with target_process(*CONTROL) as target:
        done = subprocess.run(
            [str(own_suites()), "-test.v", "-test.timeout", f"{LIMIT_S}s"],
            cwd=folder,
            env=os.environ | {"KGO_SEEDS": target.bootstrap, "KGO_TEST_RECORDS": str(SUITE_RECORDS)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S + 30,
            check=False,
        )
        assert target.process.poll() is None
    failed = set(re.findall(r"^--- FAIL: (\w+) ", done.stdout, re.MULTILINE))
    assert failed == NEED_INTERNAL_TOPICS, done.stdout[-5000:]
    assert len(re.findall(r"^--- PASS: ", done.stdout, re.MULTILINE)) > 100
