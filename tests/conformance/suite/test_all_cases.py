"""What is true of every case."""

from __future__ import annotations

import re
from collections import Counter

from kafka_share_proxy.conformance.suite.all_cases import ALL_CASES
from kafka_share_proxy.conformance.suite.building import KEYS
from kafka_share_proxy.conformance.suite.capabilities import SETTINGS

CASES = ALL_CASES.select()
PROBED = {"several-nodes", "share", "consumer-groups", "views", "individual-commits", *SETTINGS}
SUITES = {
    "apiversions", "metadata", "produce-fetch", "groups", "offsets", "transactions", "share-groups", "dead-letters",
    "queues", "views", "individual-commits",
}  # fmt: skip


def test_there_are_at_least_400_cases_in_eleven_suites() -> None:
    counts = Counter(each.suite for each in CASES)
    assert set(counts) == SUITES
    assert sum(counts.values()) >= 400
    assert counts["share-groups"] >= 200


def test_each_case_has_an_id_a_sentence_and_a_source() -> None:
    wrong = [
        each.id
        for each in CASES
        if not re.fullmatch(r"[a-z0-9-]+(\.[A-Za-z0-9_-]+)+(\.[A-Za-z0-9_.-]+)?", each.id)
        or not each.sentence.endswith(".")
        or not each.source
        or re.search(r"\{(name|\d)", each.sentence + each.id)
    ]
    assert wrong == []


def test_no_two_cases_of_a_suite_have_the_same_sentence() -> None:
    counts = Counter((each.suite, each.sentence) for each in CASES)
    assert [sentence for sentence, count in counts.items() if count > 1] == []


def test_each_need_is_a_probed_capability_or_a_version_of_an_api() -> None:
    needs = {need for each in CASES for need in each.needs}
    versions = {need for need in needs if ":" in need}
    assert needs - versions <= PROBED
    assert {need.partition(":")[0] for need in versions} <= set(KEYS)
