"""Cases of individual commits: ranges of finished offsets in the metadata of a commit."""

from __future__ import annotations

from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.classic_members import stable_member
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.expectations import equal
from kafka_share_proxy.conformance.suite.protocol.committed_offsets import commit, committed, delete
from kafka_share_proxy.wire.errors import ErrorCode

NEEDS = ("individual-commits",)
RULES = "commits/README.md rule"


async def commit_text(run: CaseRun, group: str, topic: CaseTopic, offset: int, text: str, **fields: object) -> int:
    """Commit an offset with this metadata; return the error."""
    return await commit(run, group, topic, offset, committed_metadata=text, **fields)  # type: ignore[arg-type]


async def shown(run: CaseRun, group: str, topic: CaseTopic) -> tuple[int, str]:
    """Return the committed offset and its metadata."""
    partition = await committed(run, group, topic)
    return partition.committed_offset, partition.metadata


EFFECTS: dict[str, tuple[list[tuple[int, str]], tuple[int, str]]] = {
    "touching": ([(0, "ic/1;0-4")], (5, "")),
    "behind-a-hole": ([(0, "ic/1;3-4")], (0, "ic/1;3-4")),
    "single-offset": ([(0, "ic/1;2-2")], (0, "ic/1;2-2")),
    "several": ([(0, "ic/1;2-3,6-6,8-9")], (0, "ic/1;2-3,6-6,8-9")),
    "descending": ([(0, "ic/1;8-9,2-3")], (0, "ic/1;2-3,8-9")),
    "overlapping-in-one": ([(0, "ic/1;2-5,4-8")], (0, "ic/1;2-8")),
    "merged": ([(0, "ic/1;2-3"), (0, "ic/1;4-5")], (0, "ic/1;2-5")),
    "overlapping": ([(0, "ic/1;2-6"), (0, "ic/1;4-8")], (0, "ic/1;2-8")),
    "hole-closed": ([(0, "ic/1;3-9"), (0, "ic/1;0-2")], (10, "")),
    "moved-over-stored": ([(0, "ic/1;3-9"), (3, "")], (10, "")),
    "plain-before-the-range": ([(0, "ic/1;5-9"), (2, "")], (2, "ic/1;5-9")),
    "offset-and-range": ([(4, "ic/1;4-5,8-8")], (6, "ic/1;8-8")),
    "lower-offset-keeps": ([(5, "ic/1;7-7"), (2, "ic/1;9-9")], (5, "ic/1;7-7,9-9")),
    "rewind-by-plain": ([(5, "ic/1;7-8"), (1, "")], (1, "")),
    "user-text": ([(0, "a note")], (0, "a note")),
    "empty-text": ([(0, "ic/1;")], (0, "")),
}


@case_for_each(EFFECTS, "individual-commits.effect.{name}", f"{RULES} 7, 9, 19", needs=NEEDS)
async def effect(run: CaseRun, commits: list[tuple[int, str]], expected: tuple[int, str]) -> None:
    """The commits {0} leave the committed offset and ranges {1}."""
    topic, group = await run.topic(count=20), run.group()
    for offset, text in commits:
        equal(f"error of {offset} {text!r}", await commit_text(run, group, topic, offset, text), ErrorCode.NONE)
    equal("offset and metadata", await shown(run, group, topic), expected)


REFUSED = {
    "without-last": "ic/1;8",
    "empty-piece": "ic/1;2-3,,5-6",
    "last-before-first": "ic/1;5-3",
    "not-a-number": "ic/1;a-b",
    "negative": "ic/1;-3",
}


@case_for_each(
    {name: (text,) for name, text in REFUSED.items()}, "individual-commits.refused.{name}", f"{RULES} 12", needs=NEEDS
)
async def refused(run: CaseRun, text: str) -> None:
    """The text {0} gets INVALID_REQUEST and changes nothing."""
    topic, group = await run.topic(count=20), run.group()
    await commit_text(run, group, topic, 1, "ic/1;5-6")
    equal("error", await commit_text(run, group, topic, 1, text), ErrorCode.INVALID_REQUEST)
    equal("offset and metadata", await shown(run, group, topic), (1, "ic/1;5-6"))


@case("individual-commits.members.generation", f"{RULES} 6", needs=NEEDS)
async def generation(run: CaseRun) -> None:
    """The coordinator's refusal is returned, and no range is stored."""
    topic = await run.topic(count=20)
    member = await stable_member(run)
    ids = {"generation_id_or_member_epoch": member.generation + 5, "member_id": member.member_id}
    code = await commit_text(run, member.group, topic, 0, "ic/1;0-4", **ids)
    equal("error", code, ErrorCode.ILLEGAL_GENERATION)
    equal("committed offset", (await shown(run, member.group, topic))[0], -1)


@case("individual-commits.members.right", f"{RULES} 6", needs=NEEDS)
async def of_a_member(run: CaseRun) -> None:
    """A member's ranges are stored."""
    topic = await run.topic(count=20)
    member = await stable_member(run)
    ids = {"generation_id_or_member_epoch": member.generation, "member_id": member.member_id}
    equal("error", await commit_text(run, member.group, topic, 0, "ic/1;1-4", **ids), ErrorCode.NONE)
    equal("offset and metadata", await shown(run, member.group, topic), (0, "ic/1;1-4"))


@case("individual-commits.groups.independent", f"{RULES} 1", needs=NEEDS)
async def independent(run: CaseRun) -> None:
    """Ranges belong to one group."""
    topic, first, second = await run.topic(count=20), run.group(), run.group()
    await commit_text(run, first, topic, 0, "ic/1;3-4")
    await commit(run, second, topic, 0)
    equal("offset and metadata of the other group", await shown(run, second, topic), (0, ""))


@case("individual-commits.deleted.offsets", f"{RULES} 22", needs=NEEDS)
async def deleted_offsets(run: CaseRun) -> None:
    """OffsetDelete removes the ranges with the offset."""
    topic, group = await run.topic(count=20), run.group()
    await commit_text(run, group, topic, 0, "ic/1;3-4")
    equal("error", (await delete(run, group, topic)).error_code, ErrorCode.NONE)
    equal("committed offset", (await shown(run, group, topic))[0], -1)
    await commit(run, group, topic, 3)
    equal("after a plain commit", await shown(run, group, topic), (3, ""))


@case("individual-commits.deleted.group", f"{RULES} 22", needs=NEEDS)
async def deleted_group(run: CaseRun) -> None:
    """DeleteGroups removes the ranges."""
    topic, group = await run.topic(count=20), run.group()
    await commit_text(run, group, topic, 0, "ic/1;3-4")
    response = await run.request("DeleteGroups", await run.coordinator(group), groups_names=[group])
    equal("ErrorCode", response.results[0].error_code, ErrorCode.NONE)
    await commit(run, group, topic, 3)
    equal("after a plain commit", await shown(run, group, topic), (3, ""))
