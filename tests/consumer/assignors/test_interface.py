"""All assignors against Kafka's own (tests/consumer/oracle): the same members and partitions, the same assignment."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafka_share_proxy.consumer.assignors.interface import static_members_first

from tests.consumer.assignors.groups import member
from tests.consumer.oracle import assignors
from tests.consumer.oracle.assignors import ASSIGNORS, CASES, GOLDEN, RELEASES, Case, compact, is_valid, read_response

STORIES = CASES // (assignors.ROUNDS * len(ASSIGNORS))
LIVE_STORIES = 60


def differences(requested: list[Case], responses: list[str]) -> list[str]:
    """Return where ours is not valid, or is not Java's though Java's is."""
    return [
        f"{case}\njava {response}\nours {compact(ours)}"
        for case, response, ours in zip(requested, responses, (case.ours() for case in requested), strict=True)
        if not is_valid(case, ours) or response not in ("error", compact(ours))
    ]


def test_every_recorded_case_is_assigned_as_java_assigned_it() -> None:
    requested, responses = assignors.some_cases(STORIES), GOLDEN.read_text().splitlines()
    assert len(responses) > 300
    assert responses.count("error") < 10, "a case in which Java fails, or assigns what nobody wanted, compares nothing"
    assert differences(requested, responses) == []


def test_among_the_recorded_cases_are_many_in_which_racks_decide() -> None:
    in_racks = [case for case in assignors.some_cases(STORIES) if case.racks and case.assignor != "roundrobin"]
    decided = [case for case in in_racks if case.ours() != replace(case, racks={}).ours()]
    assert len(decided) > len(in_racks) / 4


@pytest.mark.broker
@pytest.mark.parametrize("release", RELEASES)
def test_both_java_releases_assign_as_we_do(release: str) -> None:
    """Other cases than the recorded ones, by the classes of both releases."""
    if not assignors.has_compiler():
        pytest.skip("needs a JDK: the Java at hand has no compiler")
    requested = assignors.some_cases(LIVE_STORIES, first=10_000)
    java_assignments = [read_response(response) for response in assignors.judge(requested, release)]
    responses = [
        "error" if theirs is None or not is_valid(case, theirs) else compact(theirs)
        for case, theirs in zip(requested, java_assignments, strict=True)
    ]
    assert responses.count("error") < len(requested) / 50
    assert differences(requested, responses) == []


@pytest.mark.parametrize("name", ASSIGNORS)
def test_an_assignor_has_the_name_and_protocol_of_its_java_class(name: str) -> None:
    assert ASSIGNORS[name].name == name
    assert ASSIGNORS[name].protocol.value == ("cooperative" if name == "cooperative-sticky" else "eager")


def test_static_members_come_first_by_instance_id() -> None:
    members = {
        "m2": member("a"),
        "m9": member("a", instance_id="i1"),
        "m1": member("a"),
        "m0": member("a", instance_id="i2"),
    }
    assert static_members_first(members, members) == ["m9", "m0", "m1", "m2"]
