"""Tests that the whole run leaves out because others cover them in short; `tests/run -m long` runs them.

Most are the same test on another release, coordinator, seed or step of a crash, or show with brokers what tests without
them show as well. They get the mark `long` here, in one place, so that their files need not know what a whole run
costs. Tests that are always long have the mark in their file.
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
        r"test_(?!t7_|members_get_the_committed_offset).*\[3\.9\.1 metadata.*|test_a004_14_.*",
        "the first tests of each client, and 3.9.1 with the topic; both places in tests/commits/test_crashes.py; "
        "tests/commits/test_storing.py",
    ),
    (
        "tests/stock/test_commits_two_proxies.py",
        r"test_t15_.*states[12]\]|test_proxy_that_waits_.*",
        "a fleet with the topic; both places in tests/commits/test_crashes.py; one that waits in tests/commits"
        "/test_followed_groups.py, and in tests/adversity/test_durable_state.py",
    ),
    (
        "tests/stock/test_commits_command.py",
        r".*\[(4\.3\.0 topic|3\.9\.1 metadata)\]",
        "3.9.1 with the topic; the command reads the same records",
    ),
    (
        "tests/adversity/test_individual_commits.py",
        r".*",
        "every step in tests/commits/test_crashes.py; an owner that is killed, on real brokers, in "
        "tests/stock/test_commits_two_proxies.py, and a restart in tests/stock/test_individual_commits.py",
    ),
    (
        "tests/adversity/test_state_transactions.py",
        r".*",
        "every step and refusal in tests/durable/test_state_transactions.py; kill -9 on real brokers in "
        "tests/stock/test_dead_letters.py, whose records and state are such transactions",
    ),
    (
        "tests/adversity/test_durable_state.py",
        r"test_killed_at_each_step\[(?!accepted\]).*",
        "the step accepted; every step in tests/sharegroups/fetch/test_share_storm.py",
    ),
    # a second release, client or protocol that the first covers
    ("tests/stock/test_views.py", r"test_a004_20_.*\[4\.3\.0\]", "3.9.1"),
    (
        "tests/stock/test_views_unprepared.py",
        r".*(\[4\.3\.0.*|-others\])|test_without_the_right_.*",
        "3.9.1 with clients in Python; franz-go and Kafka's console in tests/stock/test_views_programs.py; rights in "
        "tests/stock/test_sasl.py, tests/views/apis/test_k03_metadata.py and "
        "tests/views/apis/test_k68_consumer_group_heartbeat.py",
    ),
    ("tests/stock/test_cooperative_fetch.py", r".*\[4\.3\.0\]", "3.9.1"),
    ("tests/stock/test_stock_tools.py", r".*\[(3\.9\.1-on-3\.9\.1|4\.3\.0-on-4\.3\.0)\]", "tools of 4.3.0 on 3.9.1"),
    (
        "tests/stock/test_java.py",
        r"test_console_tools\[(.*-4\.3\.0|4\.3\.0-newest)\]|test_performance_tools\[.*\]"
        r"|test_(transactions|share_group_tool|admin_tools)\[4\.3\.0\]|test_group_rebalances\[4\.3\.0-consumer\]",
        "newest console tools; 3.9.1; the consumer protocol in tests/stock/test_views_programs.py",
    ),
    ("tests/stock/test_sasl.py", r".*\[stop\]", "kill -9"),
    (
        "tests/stock/test_confluent.py",
        r"test_share_consumers?_.*\[4\.3\.0(-.*)?\]",
        "3.9.1; groups of the brokers in tests/oracle/test_share_choice.py",
    ),
    ("tests/stock/test_kafkajs.py", r".*\[4\.3\.0\]", "3.9.1"),
    ("tests/stock/test_queues.py", r"test_members_settle_.*\[lz4\]", "records that are not compressed; tests/reading"),
    ("tests/stock/test_granted_codes.py", r".*\[4\.3\.0\]", "3.9.1"),
    ("tests/stock/test_three_nodes_43.py", r".*", "3.9.1 on three nodes, and groups of the brokers in test_confluent"),
    ("tests/stock/test_one_port.py", r".*\[balanced(-(aiokafka|confluent))?\]", "directly, and kafka-python balanced"),
    (
        "tests/stock/test_observing_fleet.py",
        r".*",
        "tests/stock/test_observing.py, tests/sharegroups/test_lag.py; tests/app/observing/test_status_page.py for the"
        " other proxies, tests/fleet/test_edge.py for their groups",
    ),
    (
        "tests/stock/test_individual_commit_examples.py",
        r".*",
        "the same program for confluent-kafka in tests/stock/test_cooperative_fetch.py; the other clients in "
        "tests/stock/test_individual_commits.py",
    ),
    ("tests/oracle/test_null_against_empty.py", r".*\[4\.3\.0\]", "3.9.1"),
    ("tests/client/test_bearer_token.py", r".*\[3\.9\.1\]", "4.3.0"),
    ("tests/client/test_weighted_groups.py", r"test_partitions_of_a_base_topic_.*\[kafka_43\]", "3.9.1 and a view"),
    (
        "tests/client/test_weighted_groups.py",
        r"test_members_get_the_records_.*\[counts\]|test_a_member_that_joins_or_leaves_.*",
        "weights; tests/consumer/assignors/test_weighted_sticky_assignor.py for partitions that move",
    ),
    ("tests/client/test_stopped_process.py", r"test_work_is_cancelled_.*\[4\.3\.0\]", "3.9.1"),
    ("tests/client/test_secure_brokers.py", r".*\[4\.3\.0(-.*)?\]|.*-SCRAM-SHA-512\]", "3.9.1 with SCRAM-SHA-256"),
    ("tests/client/test_deserializers.py", r"test_a_share_consumer_.*\[implicit\]", "explicit"),
    ("tests/client/test_acceptance_in_steps.py", r".*\[4\.3\.0\]", "3.9.1; 4.3.0 with the consumer protocol"),
    ("tests/client/test_real_brokers.py", r"test_a_delayed_.*cooperative-sticky\]|.*\[4\.3\.0\]", "range; 3.9.1"),
    ("tests/client/test_real_brokers.py", r"test_a_delayed_revoke_.*\[4\.3\.0-.*\]|.*\[43-consumer\]", "3.9.1"),
    ("tests/client/test_catch_up_after_a_kill.py", r".*\[(3\.9\.1|4\.3\.0)\]", "3.9.1 through the proxy"),
    ("tests/client/test_share_real_brokers.py", r".*\[4\.3\.0\]", "3.9.1; brokers of 4.3.0 in other tests there"),
    (
        "tests/client/test_acceptance.py",
        r".*\[4\.3\.0(-eager)?\]",
        "3.9.1; 4.3.0 with the consumer protocol",
    ),
    ("tests/client/test_bad_network.py", r".*-1\]", "the other seed"),
    ("tests/client/test_worker_pool.py", r".*-[12]\]", "the other seed"),
    (
        "tests/consumer/test_brokers.py",
        r"test_(a001_4|a000_2)_.*(\[(cooperative|eager)-.*|-(cooperative|eager)|\[consumer-3\.9\.1)\]",
        "the consumer protocol on 4.3.0; every protocol in tests/consumer/test_storm.py, tests/consumer/test_faults.py "
        "and, on real brokers, in tests/client/test_acceptance.py and tests/client/test_bad_network.py",
    ),
    ("tests/brokers/test_committing_producer.py", r".*\[kafka_43\]", "3.9.1"),
    (
        "tests/pipeline/tables/test_backfill_job.py",
        r"test_backfill_and_ingest_.*",
        "holes and live reads, and overlapping holes, in this file; tests/pipeline/tables/test_record_claims.py",
    ),
    (
        "tests/pipeline/tables/test_compact_job.py",
        r"test_batches_are_merged_.*\[parquet\]|test_a_run_that_was_killed_.*\[[12]\]",
        "delta; a later deletion",
    ),
    ("tests/stock/test_mixed_operation.py", r".*\[(brokers|local)\]", "a fleet"),
    (
        "tests/stock/test_renewed_certificates.py",
        r".*",
        "tests/app/serving/test_reloading.py, tests/stock/test_mixed_operation.py; clients with TLS in "
        "tests/stock/test_one_port.py",
    ),
    (
        "tests/stock/test_views_two_proxies.py",
        r".*",
        "tests/views/test_creation.py and tests/brokers/test_internal_topics.py for topics that another proxy has made",
    ),
    (
        "tests/stock/test_dead_letters_command.py",
        r".*\[kafka_43\]|test_dead_letters_of_kafka_4_4_.*",
        "3.9.1; letters of Kafka 4.4 are those of the proxy in tests/oracle/test_dead_letters.py",
    ),
    ("tests/conformance/suite/test_whole_suite.py", r"test_kafka_39_.*", "the proxy in front of it"),
    ("tests/pipeline/share/test_share_member.py", r".*\[proxy_39_quick\]", "a broker of 4.3.0; test_share_stream"),
    # Kafka's classes, with what they did recorded in the repository
    ("tests/consumer/assignors/test_interface.py", r"test_both_java_releases_.*", "the recorded cases"),
    (
        "tests/sharegroups/model/test_kafka_share_partition.py",
        r"test_the_recording_is_.*",
        "the recording, which the engine follows",
    ),
    (
        "tests/wire/test_kafka_classes.py",
        r"test_all_versions_.*",
        "the recorded bytes; every version in tests/wire/test_kio.py",
    ),
    # a second release, client or protocol again
    ("tests/sharegroups/apis/test_group_rights.py", r".*\[4\.3\.0\]", "3.9.1"),
    ("tests/sharegroups/dead_letters/test_group_topic.py", r".*\[kafka_43\]", "3.9.1"),
    ("tests/deploy/test_systemd.py", r"test_clients_wait_.*\[1\]", "two workers"),
    (
        "tests/adversity/test_fleet.py",
        r".*\[stalled\]|test_owner_that_leaves_in_order_is_followed_.*",
        "a link that is cut; tests/fleet/test_peer_link.py; an owner that leaves in order and serves until then, and "
        "tests/durable/test_ownership_group_scripted.py for successors",
    ),
    ("tests/adversity/test_tls_attacks.py", r"test_unfinished_handshakes_.*\[(garbage|reset)\]", "the other kinds"),
    ("tests/stock/test_observing.py", r"test_a_browser_.*\[(without-brokers|all-details)\]", "clients at work"),
    (
        "tests/views/apis/test_large_requests.py",
        r".*\[(?!Metadata-).*-(?!shown\]).*",
        "every kind of name in Metadata; views that are shown, in each API",
    ),
    ("tests/client/test_peak_memory.py", r".*\[consumer 500\]", "one record at a time; share consumers"),
    ("tests/conformance/test_proxy_and_target.py", r"test_share_groups_of_three_nodes_.*", "one node"),
    ("tests/pipeline/test_plan_coverage.py", r".*\[(reads of 8 and of 2,000|batches of 10)\]", "the other shapes"),
    # behaviour that tests without brokers, or smaller ones, have
    (
        "tests/stock/test_state_topic_settings.py",
        r".*",
        "tests/durable/test_topic_guard.py, tests/brokers/test_topic_settings.py, tests/commits/test_checks.py",
    ),
    (
        "tests/stock/test_sasl.py",
        r"test_(texts_of_ranges_are_refused_while|connections_show|nothing_is_served_after)_.*",
        "tests/forwarding/dispatch/test_request_dispatch.py for lifetimes; tests/durable/test_state_home.py for rights"
        " that come later, tests/commits/test_checks.py; tests/forwarding/test_connection_list.py",
    ),
    (
        "tests/stock/test_moved_members.py",
        r".*",
        "tests/fleet/test_moved_clients.py; groups of all workers in tests/stock/test_workers.py",
    ),
    ("tests/oracle/test_share_choice.py", r"test_state_stays_.*", "tests/sharegroups/test_placement.py"),
    (
        "tests/client/test_real_brokers.py",
        r"test_sasl_plain_.*",
        "tests/client/test_secure_brokers.py",
    ),
    (
        "tests/client/test_bearer_token.py",
        r"test_a_token_that_the_broker_refuses_.*",
        "tests/client/test_broker_connections.py; tokens that are accepted here",
    ),
    ("tests/pipeline/report/test_report_plots.py", r"test_any_span_of_time_.*\[120\]", "other spans"),
    (
        "tests/stock/test_individual_commits.py",
        r"test_a004_18_.*",
        "tests/commits/apis/test_k08_offset_commit.py",
    ),
    (
        "tests/stock/test_connection_age.py",
        r".*",
        "tests/forwarding/test_connection_timeouts.py; clients that connect again in tests/stock/test_sasl.py",
    ),
    ("tests/stock/test_denied_apis.py", r".*", "tests/stock/test_mixed_operation.py, tests/forwarding/dispatch"),
    ("tests/stock/test_redelivery_delay.py", r"test_a_named_delay_.*", "tests/sharegroups/model/test_redelivery.py"),
    (
        "tests/stock/test_tracing.py",
        r".*",
        "tests/app/observing/test_spans.py for spans, their provider and what cannot be exported",
    ),
    (
        "tests/adversity/test_dead_broker.py",
        r".*",
        "tests/durable/test_journal_transactions.py, tests/durable/test_ownership_group_scripted.py for what is silent;"
        " tests/brokers/test_cluster_watch.py and tests/app/observing/test_readiness.py for what is logged and shown;"
        " tests/stock/test_three_nodes_39.py for a broker that dies",
    ),
    (
        "tests/adversity/test_second_state.py",
        r".*",
        "tests/durable/test_state_home.py for several states, tests/adversity/test_fleet.py for owners that are killed",
    ),
    (
        "tests/adversity/test_fleet_queues.py",
        r".*",
        "tests/storm/test_key_order.py and tests/storm/test_delays.py over takeovers; tests/fleet/test_edge.py; "
        "tests/adversity/test_fleet.py for an owner that is killed",
    ),
    (
        "tests/adversity/test_hostile_view_readers.py",
        r"test_bombs_stay_within_.*",
        "one bomb; tests/views/fetch/test_fetching.py for what threads may open",
    ),
    (
        "tests/sharegroups/test_hand_over.py",
        r"test_(whole_fleet|brokers_upgraded|group_that_would_be_created)_.*",
        "tests/sharegroups/test_followed_everywhere.py, tests/sharegroups/test_moves_here.py; "
        "tests/app/serving/test_server.py for brokers that are upgraded meanwhile",
    ),
    (
        "tests/sharegroups/test_take_back.py",
        r"test_(member_that_is_not_connected|group_that_was_taken_back)_.*",
        "tests/sharegroups/test_moves_here.py, tests/sharegroups/test_followed_group.py",
    ),
    (
        "tests/client/test_commits_of_many_ranges.py",
        r"test_through_the_proxy_ranges_of_several_.*",
        "every done record in this file; tests/stock/test_individual_commits.py for 10,000 ranges",
    ),
    (
        "tests/stock/test_java.py",
        r"test_(consumers_that_start_together|transactions)_?.*",
        "tests/sharegroups/model/test_assignor.py; members that share the work, and transactions, in "
        "tests/stock/test_confluent.py",
    ),
    ("tests/oracle/test_tools.py", r".*", "tests/stock/test_java.py and tests/stock/test_stock_tools.py"),
    (
        "tests/conformance/target/test_nodes_against_native.py",
        r".*",
        "one node: tests/conformance/target/test_against_native.py; tests/conformance/target/test_partition_access.py",
    ),
    (
        "tests/pipeline/audit/test_audit_job.py",
        r"test_a_reject_is_in_its_table_once_.*",
        "rejects of earlier releases, and two runs over the same lines",
    ),
    (
        "tests/pipeline/audit/test_audit_tables.py",
        r"test_(a_hot_key_weighs|tables_of_no_events)_.*",
        "tests/audit/test_sampling.py; a hot key in tests/stock/test_audit_files.py; tables without rows in "
        "tests/pipeline/tables/test_lake.py, columns in tests/pipeline/audit/test_audit_job.py",
    ),
    (
        "tests/pipeline/tables/test_ingest_job.py",
        r"test_(a_batch_that_is_repeated|a_topic_that_was_created_again)_.*",
        "a stream that died while it claimed, and another topic of the same name, in "
        "tests/pipeline/tables/test_record_claims.py; topics that were created again, on brokers, in "
        "tests/pipeline/source/test_source.py",
    ),
    (
        "tests/pipeline/share/test_share_stream.py",
        r"test_a_batch_of_a_topic_that_was_created_again_.*",
        "tests/pipeline/share/test_acquirer.py and tests/pipeline/share/test_share_membership.py for another topic of "
        "the same name, tests/pipeline/source/test_source.py",
    ),
    (
        "tests/stock/test_three_nodes_39.py",
        r"test_(05|125|listeners_follow|first_bootstrap)_.*",
        "tests/app/serving/test_server.py, tests/brokers/test_cluster_client.py; the leader that is killed under load",
    ),
    (
        "tests/stock/test_client_trace.py",
        r"test_(a_trace_that_no_reader|serve_begins_a_trace)_.*",
        "tests/forwarding/client_trace/test_client_trace.py, tests/app/workers/test_supervisor_trace.py",
    ),
    (
        "tests/stock/test_dead_letters_checked.py",
        r"test_topics_that_cannot_be_written_.*",
        "tests/sharegroups/dead_letters/test_letter_checks.py, tests/sharegroups/dead_letters/test_target_topics.py",
    ),
    (
        "tests/storm/test_share_partition.py",
        r"test_every_story_.*|test_a_storm_breaks_nothing\[11.\]",
        "tests/storm/test_coordinator.py; the other seeds",
    ),
    ("tests/storm/test_coordinator.py", r"test_a_storm_(over_logs_)?breaks_nothing\[1.\]", "the other seeds"),
    ("tests/consumer/test_storm.py", r".*-[5-9]-.*", "the other seeds"),
    ("tests/consumer/share/test_share_core.py", r"test_despite_failures_.*\[[23]\]", "the other seeds"),
    ("tests/sharegroups/fetch/test_share_storm.py", r"test_storm\[[3-5].\]", "the other seeds"),
    ("tests/views/fetch/test_view_storm.py", r"test_every_slot_.*\[[4-7]\]", "the other seeds"),
    (
        "tests/forwarding/rewriting/test_hidden_topics.py",
        r"test_the_cut_response_.*\[(7|8|9|1.)\]",
        "the other seeds",
    ),
    ("tests/consumer/test_faults.py", r"test_a001_7_.*-[12]\]", "the other seed"),
    ("tests/commits/test_crashes.py", r".*-(1[5-9]|2.)\]", "the other seeds"),
    ("tests/commits/test_fast_path.py", r"test_short_way_.*[\[-](1[5-9]|2.)(-.*)?\]", "the other seeds"),
    (
        "tests/adversity/test_durable_state.py",
        r"test_(wide_log_batch|many_fragmented|state_topic_that_is_deleted|suspended_beyond|ten_thousand)_.*",
        "tests/sharegroups/state/test_state_writes.py, tests/sharegroups/model/test_snapshot.py, tests/durable/"
        "test_state_home.py for topics and leases that are lost, and partitions that are read before others; "
        "tests/sharegroups/model/test_resting.py for ten thousand; a second proxy that waits and takes over",
    ),
    (
        "tests/conformance/target/test_migration_against_native.py",
        r".*",
        "tests/conformance/target/test_group_migration.py; a stock client in tests/conformance/test_stock_clients.py",
    ),
    (
        "tests/durable/test_ownership_group.py",
        r".*",
        "tests/durable/test_ownership_group_scripted.py, tests/durable/test_ownership_rules.py for leases; on real "
        "brokers tests/adversity/test_durable_state.py and tests/adversity/test_fleet.py",
    ),
    (
        "tests/adversity/test_rolling_upgrade.py",
        r".*",
        "tests/golden/test_earlier_versions.py: records, messages and a link of the earlier version; "
        "tests/fleet/test_peer_link.py, tests/fleet/test_owner.py",
    ),
    (
        "tests/stock/test_dead_letters.py",
        r"test_while_the_topic_is_missing_.*",
        "tests/sharegroups/dead_letters/test_writer.py, tests/sharegroups/dead_letters/test_pace.py",
    ),
    (
        "tests/oracle/test_dead_letters.py",
        r"test_partition_is_that_.*",
        "tests/sharegroups/dead_letters/test_writer.py, and of brokers in "
        "tests/conformance/suite/protocol/test_dead_letters.py",
    ),
    (
        "tests/oracle/test_switched_off.py",
        r".*",
        "tests/app/serving/test_server.py, tests/forwarding/dispatch/test_offered_versions.py",
    ),
    (
        "tests/oracle/test_dead_letters.py",
        r"test_used_up_deliveries_.*",
        "tests/sharegroups/model/test_dead_letters.py, tests/stock/test_dead_letters.py, and of brokers in "
        "tests/conformance/suite/protocol/test_dead_letters.py",
    ),
    ("tests/oracle/test_low_limits.py", r".*\[native\]", "the proxy"),
    (
        "tests/stock/test_views_list.py",
        r".*",
        "tests/app/commands/test_view_groups.py; audit events in tests/views/apis/test_k11_join_group.py",
    ),
    (
        "tests/stock/test_workers.py",
        r"test_(no_worker_has_all|a_worker_that_replaces)_.*",
        "tests/forwarding/test_fair_share.py, tests/fleet/test_moved_clients.py, "
        "tests/app/workers/test_covered_places.py",
    ),
    (
        "tests/stock/test_client_trace.py",
        r"test_the_commands_of_the_page_.*",
        "the other traces of this file; tests/app/commands/test_trace_command.py",
    ),
    (
        "tests/app/serving/test_server.py",
        r"test_(a_port_that_is_taken|the_ports_are_the_same_after)_.*",
        "every port that is taken; tests/app/serving/test_broker_listeners.py; a proxy that is killed under clients in "
        "tests/stock/test_sasl.py",
    ),
    ("tests/deploy/test_kubernetes_manifests.py", r".*-1\.33\]", "the oldest and the newest release"),
    (
        "tests/docs/test_contributing.py",
        r"test_the_commands_that_run_one_room_select_.*",
        "their folders and marks, which that file looks up; a whole run collects all rooms",
    ),
    (
        "tests/deploy/test_release_workflow.py",
        r"test_actionlint_.*",
        "jobs, permissions, order and pins in this file; tests/long/release_workflow.py runs its scripts",
    ),
    # programs and manifests that start much
    (
        "tests/docs/test_installation.py",
        r"test_a_checkout_is_installed_.*",
        "tests/public/test_wheel.py; `tests/run` installs its checkout",
    ),
    (
        "tests/docs/test_share_group_programs.py",
        r".*\[(go|java)\]",
        "programs in C and Python, and Kafka's console; tests/stock/test_franz_go.py",
    ),
    ("tests/docs/test_queue_programs.py", r".*\[(java|trio)\]", "confluent-kafka; ShareMember.java"),
    (
        "tests/conformance/test_recipes.py",
        r"test_the_(go|java)_recipe_.*",
        "the recipes for Python and Node; tests/conformance/test_stock_clients.py",
    ),
    (
        "tests/deploy/test_kubernetes_lifecycle.py",
        r".*",
        "tests/deploy/test_kubernetes_manifests.py, tests/deploy/test_kubernetes_files.py, "
        "tests/deploy/test_kubernetes_sidecar.py; tests/app/serving/test_server.py for signals and ends",
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


PATTERNS: dict[str, list[str]] = {}
for _file, _pattern, _ in LEFT_OUT:
    PATTERNS.setdefault(_file, []).append(_pattern)


def is_left_out(file: str, name: str) -> bool:
    """Return True if a whole run leaves out this test; `name` includes its parameters."""
    return any(re.fullmatch(pattern, name, re.DOTALL) for pattern in PATTERNS.get(file, ()))
