"""Pages of all workers as those of one proxy."""

from typing import Any

from kafka_share_proxy.app.observing.status_html import HEAD, TAIL
from kafka_share_proxy.app.workers import merged_pages
from kafka_share_proxy.forwarding.connection_list import LISTED_MAX


def line(client: str, waits_s: int = 0, request_bytes: int = 0) -> dict[str, Any]:
    return {"client": client, "waits_s": waits_s, "request_bytes": request_bytes, "response_bytes": 0}


def test_each_connection_names_its_worker_and_those_that_wait_longest_are_first() -> None:
    bodies = {
        0: {"connections": [line("a", 3), line("b", 0, 10)], "left_out": 1},
        3: {"connections": [line("c", 5), line("d", 0, 20)], "left_out": 2},
    }
    merged = merged_pages.connections(bodies)
    assert [(each["client"], each["worker"]) for each in merged["connections"]] == [
        ("c", 3),
        ("a", 0),
        ("d", 3),
        ("b", 0),
    ]
    assert merged["left_out"] == 3


def test_a_list_of_connections_is_as_long_as_that_of_one_worker() -> None:
    bodies = {number: {"connections": [line("a", number)] * LISTED_MAX, "left_out": 0} for number in range(3)}
    merged = merged_pages.connections(bodies)
    assert {each["worker"] for each in merged["connections"]} == {2}
    assert (len(merged["connections"]), merged["left_out"]) == (LISTED_MAX, 2 * LISTED_MAX)


def test_a_group_of_a_sibling_is_not_elsewhere() -> None:
    of_a = {"groups": [{"group": "b"}], "resting_partitions": 1, "elsewhere": ["a", "far"], "complete": True}
    of_b = {"groups": [{"group": "a"}], "resting_partitions": 2, "elsewhere": ["b", "far"], "complete": True}
    assert merged_pages.groups({0: of_a, 1: of_b}) == {
        "groups": [{"group": "a", "worker": 1}, {"group": "b", "worker": 0}],
        "resting_partitions": 3,
        "elsewhere": ["far"],
        "complete": True,
    }


def test_the_list_of_groups_is_complete_only_if_that_of_each_worker_is() -> None:
    whole = {"groups": [], "resting_partitions": 0, "complete": True}
    partial = {"groups": [], "resting_partitions": 0, "complete": False, "reason": "state is being loaded"}
    merged = merged_pages.groups({0: whole, 1: partial})
    assert (merged["complete"], merged["reason"]) == (False, "state is being loaded")


def test_the_proxy_is_ready_if_one_worker_is() -> None:
    probes = {0: (False, {"ready": False, "reasons": ["starting"]}), 1: (True, {"ready": True, "reasons": []})}
    ready, body = merged_pages.readiness(probes)
    assert ready
    assert body == {"ready": True, "reasons": [], "workers": {"0": False, "1": True}}


def test_without_a_ready_worker_the_reasons_of_one_are_shown() -> None:
    ready, body = merged_pages.readiness({0: (False, {"ready": False, "reasons": ["starting"]})})
    assert (ready, body["reasons"]) == (False, ["starting"])
    assert merged_pages.readiness({}) == (False, {"ready": False, "reasons": ["no worker runs"], "workers": {}})


def test_state_partitions_are_those_of_all_workers() -> None:
    probes = {number: (True, {"ready": True, "state_partitions": number + 10}) for number in range(2)}
    assert merged_pages.readiness(probes)[1]["state_partitions"] == 21


def test_the_status_page_has_the_sections_of_all_workers_with_different_ids() -> None:
    page = f'{HEAD}<section><details id="d1">x</details></section>{TAIL}'
    merged = merged_pages.status([(0, page), (1, page)])
    assert merged.startswith(HEAD)
    assert merged.endswith(TAIL)
    assert merged.count("<section>") == 2
    assert (merged.count('<details id="w0-d1"'), merged.count('<details id="w1-d1"')) == (1, 1)
