"""Tests that the whole run leaves out because others cover them in short; `tests/run -m long` runs them.

Most are the same test on another release, coordinator or step of a crash. They get the mark `long` here, in one place,
so that their files need not know what a whole run costs. Tests that are always long have the mark in their file.
"""

from __future__ import annotations

import re

LEFT_OUT: tuple[tuple[str, str, str], ...] = (
    # a release, coordinator or state of individual commits
    (
        "tests/stock/test_individual_commits.py",
        r".*\[(3\.9\.1-classic|4\.3\.0) .*",
        "3.9.1 with the coordinator of KIP-848, and both states of the ranges in tests/commits",
    ),
    (
        "tests/stock/test_individual_commits.py",
        r"test_a004_18_.*\[3\.9\.1 metadata\].*",
        "3.9.1 with the topic; tests/commits/kernel for texts",
    ),
    (
        "tests/stock/test_commits_two_proxies.py",
        r"test_t15_.*states1\]|test_proxy_that_waits_.*\[topic\]",
        "one fleet for each state, one standby",
    ),
    (
        "tests/stock/test_commits_command.py",
        r".*\[4\.3\.0 topic\]",
        "3.9.1; the command reads the same records",
    ),
    (
        "tests/adversity/test_individual_commits.py",
        r"test_t9_.*(append on its way|before the coordinator|merges-after the coordinator|mark-stored, not answered)\]"
        r"|test_t14_.*|test_t15_.*",
        "two steps; all in tests/commits/test_crashes.py; owners in tests/stock/test_commits_two_proxies.py",
    ),
    (
        "tests/adversity/test_state_transactions.py",
        r"test_owner_killed_.*(AddPartitionsToTxn|state Produce|outside Produce) (before|sent)\]|.*EndTxn before\]",
        "the other steps, each after the broker has processed it",
    ),
    (
        "tests/adversity/test_durable_state.py",
        r"test_killed_at_each_step\[(timed out|rejected|release under way|accept under way)\]",
        "the steps acquired, accepted and released; every step in tests/sharegroups/fetch/test_share_storm.py",
    ),
    # a second release, client or protocol that the first covers
    ("tests/stock/test_views.py", r"test_a004_20_.*\[4\.3\.0\]", "3.9.1"),
    ("tests/stock/test_views_unprepared.py", r".*\[4\.3\.0\]", "3.9.1"),
    ("tests/stock/test_cooperative_fetch.py", r".*\[4\.3\.0\]", "3.9.1"),
    ("tests/stock/test_stock_tools.py", r".*\[(3\.9\.1-on-3\.9\.1|4\.3\.0-on-4\.3\.0)\]", "tools of 4.3.0 on 3.9.1"),
    ("tests/stock/test_java.py", r"test_console_tools\[.*-4\.3\.0\]|test_performance_tools\[4\.3\.0\]", "newest tools"),
    ("tests/stock/test_sasl.py", r"test_nothing_is_served_after_.*\[4\.3\.0\]", "3.9.1"),
    ("tests/stock/test_granted_codes.py", r".*\[4\.3\.0\]", "3.9.1"),
    ("tests/stock/test_three_nodes_43.py", r"test_125_.*", "3.9.1"),
    ("tests/stock/test_one_port.py", r".*\[balanced(-(aiokafka|confluent))?\]", "directly, and kafka-python balanced"),
    (
        "tests/stock/test_observing_fleet.py",
        r"test_the_groups_of_a_proxy_that_ended_.*",
        "the lag of a group at its owner; tests/fleet for owners that end",
    ),
    (
        "tests/stock/test_individual_commit_examples.py",
        r".*(aiokafka|kafka_python)\.py\]",
        "the same program for confluent-kafka and Java",
    ),
    ("tests/oracle/test_null_against_empty.py", r".*\[4\.3\.0\]", "3.9.1"),
    ("tests/client/test_bearer_token.py", r"test_records_are_read_over_several_.*\[3\.9\.1\]", "4.3.0"),
    ("tests/client/test_weighted_groups.py", r"test_partitions_of_a_base_topic_.*\[kafka_43\]", "3.9.1 and a view"),
    ("tests/client/test_stopped_process.py", r"test_work_is_cancelled_.*\[4\.3\.0\]", "3.9.1"),
    ("tests/client/test_secure_brokers.py", r"test_a_member_reads_.*\[4\.3\.0-(PLAIN|SCRAM-SHA-512)\]", "3.9.1"),
    ("tests/client/test_real_brokers.py", r"test_a_delayed_.*cooperative-sticky\]|test_when_a_.*\[4\.3\.0\]", "range"),
    ("tests/client/test_real_brokers.py", r"test_a_delayed_revoke_.*\[4\.3\.0-range\]", "3.9.1"),
    (
        "tests/consumer/test_brokers.py",
        r"test_a001_4_.*\[(consumer-3\.9\.1|cooperative-4\.3\.0|eager-4\.3\.0)\]|test_a000_2_.*\[4\.3\.0-(cooper|eag).*\]",
        "each protocol on the release that introduced it",
    ),
    ("tests/brokers/test_committing_producer.py", r".*\[kafka_43\]", "3.9.1"),
    ("tests/pipeline/tables/test_backfill_job.py", r"test_backfill_and_ingest_.*\[parquet\]", "delta"),
    (
        "tests/conformance/target/test_migration_against_native.py",
        r".*\[(static-0|alone-0|random-[02])\]",
        "the conditions; members of both protocols in tests/conformance/target without a broker",
    ),
    # programs and manifests that start much
    (
        "tests/docs/test_share_group_programs.py",
        r".*\[go\]",
        "programs in C, Java and Python; tests/stock/test_franz_go.py",
    ),
    ("tests/docs/test_queue_programs.py", r".*\[java\]", "the same program in Python; ShareMember.java"),
    ("tests/conformance/test_recipes.py", r"test_the_go_recipe_.*", "the recipes for Java and Python"),
    (
        "tests/deploy/test_kubernetes_lifecycle.py",
        r".*\[kubernetes_chart_node\.py\]",
        "the manifests; tests/long/run_kubernetes for the chart",
    ),
    (
        "tests/deploy/test_kubernetes_files.py",
        r"test_a_swapped_password_.*",
        "certificates; tests/app/serving",
    ),
    (
        "tests/adversity/test_request_costs.py",
        r"test_rights_on_long_group_ids_.*|test_a_bystander_hardly_waits\[.*\]",
        "iterations that stay short: tests/forwarding/test_small_requests.py, tests/views/apis/test_large_requests.py",
    ),
    (
        "tests/sharegroups/test_take_back.py",
        r"test_records_that_are_not_settled_in_time_.*",
        "the same direction to the brokers: tests/sharegroups/test_hand_over.py",
    ),
    ("tests/sharegroups/test_hand_over.py", r"test_proxy_killed_while_.*", "take-back; tests/long/hand_over.py"),
)
"""File, full pattern of a test's name in it, and what covers the behaviour in the whole run."""


def is_left_out(file: str, name: str) -> bool:
    """Return True if a whole run leaves out this test; `name` includes its parameters."""
    return any(file == path and re.fullmatch(pattern, name, re.DOTALL) for path, pattern, _ in LEFT_OUT)
