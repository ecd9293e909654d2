"""Requests of members of classic groups, against a scripted peer."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.conformance.suite.capabilities import Capabilities
from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.classic_members import ClassicGroupClient
from kafka_share_proxy.conformance.suite.cluster_under_test import ClusterUnderTest
from kafka_share_proxy.conformance.suite.dialling import Dialling

from tests.support.scripted_peer import response, scripted_peer

KNOWN = {11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5)}


async def test_a_join_repeats_with_the_member_id_that_it_got() -> None:
    sent: list[tuple[str, int, Any]] = []

    def respond(api: str, version: int, message: Any) -> Any:
        sent.append((api, version, message))
        if api == "JoinGroup":
            return response(api, error_code=0 if message.member_id else 79, member_id="given", generation_id=4)
        return response(api)

    async with scripted_peer(respond) as address:
        run = CaseRun(ClusterUnderTest(Dialling([address]), KNOWN), Capabilities("4.3", KNOWN, {}))
        member = ClassicGroupClient(run, "g", await run.connection())
        await member.join()
        await member.sync([("given", b"all")])
        await member.sync(protocol_type="consumer", protocol_name="range")
        await run.aclose()
    assert (member.member_id, member.generation) == ("given", 4)
    assert [(api, version) for api, version, _ in sent] == [
        ("JoinGroup", 5), ("JoinGroup", 5), ("SyncGroup", 3), ("SyncGroup", 5), ("LeaveGroup", 5),
    ]  # fmt: skip
    assert sent[2][2].assignments[0].assignment == b"all"
    assert sent[-1][2].members[0].member_id == "given"
