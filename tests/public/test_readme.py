"""The snippets of README.md do what it says; its programs are run by tests/stock/test_documents.py."""

from __future__ import annotations

import pytest

from tests.support import documents

LINES_MAX = 200


def test_the_readme_is_short() -> None:
    assert len(documents.README.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


def test_the_ledger_returns_what_to_process_and_what_to_commit(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(documents.block(documents.README, "python", "OffsetLedger"), "README.md", "exec"), {})
    assert capsys.readouterr().out == "[43, 44, 48, 49]\n43 ic/1;44-47\n"
