"""The cases: id, sentence, source, what they need, and the function that runs one."""

from __future__ import annotations

import fnmatch
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_share_proxy.conformance.sentences import sentence_of

if TYPE_CHECKING:
    from kafka_share_proxy.conformance.suite.case_run import CaseRun

Body = Callable[["CaseRun"], Awaitable[None]]

LIMIT_S = 60.0
"""Seconds that a case may take, if it does not say otherwise."""


@dataclass(frozen=True)
class Case:
    """One rule of the protocol that a client can observe."""

    id: str
    """suite.subject.rule"""
    sentence: str
    source: str
    """KIP, schema or Java class."""
    body: Body = field(repr=False, compare=False)
    needs: tuple[str, ...] = ()
    """Names of capabilities, or "Api:version"."""
    differs: Mapping[str, str] = field(default_factory=dict)
    """Release, or "proxy" for this proxy on any -> why it does something else."""
    limit_s: float = LIMIT_S

    @property
    def suite(self) -> str:
        """First part of the id."""
        return self.id.partition(".")[0]


class DuplicateCase(ValueError):
    """Two cases have the same id."""


class Registry:
    """Cases by id, in the order of their declaration."""

    def __init__(self) -> None:
        self._cases: dict[str, Case] = {}

    def add(self, case: Case) -> None:
        """Add a case. Raises DuplicateCase."""
        if case.id in self._cases:
            raise DuplicateCase(case.id)
        self._cases[case.id] = case

    def select(self, suites: Sequence[str] = (), patterns: Sequence[str] = ()) -> list[Case]:
        """Return the cases of these suites whose id contains or matches one of the patterns; all if none is given."""
        return [
            case
            for case in self._cases.values()
            if (not suites or case.suite in suites) and (not patterns or any(_matches(case.id, p) for p in patterns))
        ]

    @property
    def suites(self) -> list[str]:
        """Names of the suites, in the order of their declaration."""
        return list(dict.fromkeys(case.suite for case in self._cases.values()))


CASES = Registry()


def case(
    case_id: str,
    source: str,
    *,
    needs: Sequence[str] = (),
    differs: Mapping[str, str] | None = None,
    limit_s: float = LIMIT_S,
) -> Callable[[Body], Body]:
    """Declare a function to be the body of a case. Its docstring is the sentence."""

    def declare(body: Body) -> Body:
        CASES.add(Case(case_id, sentence_of(body), source, body, tuple(needs), differs or {}, limit_s))
        return body

    return declare


def case_for_each(
    rows: Mapping[str, Sequence[Any]],
    case_id: str,
    source: str,
    *,
    needs: Sequence[str] = (),
    differs: Mapping[str, Mapping[str, str]] | None = None,
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., Awaitable[None]]]:
    """Declare one case for each row: the name of a row replaces {name} in the id and its values {0}, {1} ... in the
    docstring and in `needs`; the body receives the values after the run. `differs` is by the name of the row.
    """

    def declare(body: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        sentence = sentence_of(body)
        for name, values in rows.items():
            CASES.add(
                Case(
                    case_id.format(*values, name=name),
                    sentence.format(*values, name=name),
                    source,
                    _with_values(body, values),
                    tuple(need.format(*values, name=name) for need in needs),
                    (differs or {}).get(name, {}),
                )
            )
        return body

    return declare


def _with_values(body: Callable[..., Awaitable[None]], values: Sequence[Any]) -> Body:
    async def run_body(run: CaseRun) -> None:
        await body(run, *values)

    return run_body


def _matches(case_id: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(case_id, pattern) if any(c in pattern for c in "*?[") else pattern in case_id
