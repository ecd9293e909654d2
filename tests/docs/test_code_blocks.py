"""Every code block of README.md and docs/ is run, or compared with the program, by a test that is named here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support import documents
from tests.support.documents import CHECKOUT, CONTRIBUTING, DOCS, README

BLOCKS = "tests/docs/test_examples.py"
RECIPES = "tests/conformance/test_recipes.py"
RESULTS = "tests/conformance/test_results.py"
QUEUES = "tests/docs/test_queue_programs.py"
IN_ORDER = "test_orders_are_processed_in_order_retried_and_written_as_dead_letters"
SHARE = "tests/docs/test_share_group_programs.py"
START = "tests/docs/test_start.py"
FIRST = "test_the_first_commands_check_the_cluster_and_start_a_proxy"
STOCK = "tests/stock/test_documents.py"
SPARK = "tests/pipeline/test_documented_programs.py"
TRIO = "tests/public/test_trio_programs.py"

RUN_BY: dict[tuple[Path, str], str] = {
    (README, "deploy/demo "): "tests/deploy/test_demonstration.py::test_everything_that_the_demonstration_checks_holds",
    (README, "bin/pip install ."): "tests/docs/test_installation.py::test_the_readme_and_the_start_page_install_alike",
    (README, "kafka-share-proxy serve"): f"{START}::{FIRST}",
    (README, "import AcknowledgeType, ShareConsumer"): f"{STOCK}::test_the_share_consumer_settles_what_it_gets",
    (README, "share.ordering=key"): f"{BLOCKS}::test_the_settings_of_a_queue_are_set_with_the_stock_tool",
    (README, 'subscribe(["__view'): f"{BLOCKS}::test_a_consumer_subscribes_to_a_view_by_its_name",
    (README, "OffsetLedger"): "tests/public/test_readme.py::test_the_ledger_returns_what_to_process_and_what_to_commit",
    (README, "async with open_consumer"): f"{BLOCKS}::test_the_snippet_of_the_readme_prints_the_records",
    (CONTRIBUTING, "tests/run tests/wire"): (
        "tests/docs/test_contributing.py::test_the_commands_that_run_one_room_select_tests"
    ),
    (CONTRIBUTING, "pre-commit install"): "tests/docs/test_contributing.py::test_a_hook_runs_and_finds_a_mistake",
    (CONTRIBUTING, "-m sphinx"): (
        "tests/docs/test_contributing.py::test_the_documentation_is_built_as_the_test_builds_it"
    ),
    (DOCS / "conformance.md", "--suite"): f"{BLOCKS}::test_the_commands_of_the_page_run_the_suite_against_a_cluster",
    (DOCS / "conformance.md", "conformance target"): f"{BLOCKS}::test_the_target_of_the_page_serves",
    (DOCS / "conformance-results.md", "00 00 00 19 00 03"): (
        f"{RESULTS}::test_the_reported_frame_has_three_bytes_after_its_last_field"
    ),
    (DOCS / "conformance-results.md", "--only share-groups"): (
        f"{RESULTS}::test_the_command_that_repeats_a_case_runs_it"
    ),
    (DOCS / "conformance-results.md", "list_topics"): (
        f"{RESULTS}::test_a_finding_is_in_the_file_that_the_command_writes"
    ),
    (DOCS / "conformance-results.md", "--topic t:2 --json"): (
        f"{RESULTS}::test_a_finding_is_in_the_file_that_the_command_writes"
    ),
    (
        DOCS / "conformance-results.md",
        "TestTxnEtl",
    ): "tests/long/franz_go_suites.py::test_franz_go_passes_its_tests_but_for_internal_topics",
    (DOCS / "conformance-results.md", "cut_after=6"): (
        f"{RESULTS}::test_kafkajs_ends_by_an_error_that_no_application_can_catch"
    ),
    (DOCS / "conformance-results.md", "throttle_ms"): f"{RESULTS}::test_a_throttled_client_is_in_the_report",
    (DOCS / "individual-commits.md", "committed()  "): (
        f"{BLOCKS}::test_a_commit_by_text_moves_the_committed_offset_and_keeps_the_ranges"
    ),
    (DOCS / "individual-commits.md", '"holes"'): f"{BLOCKS}::test_the_holes_have_the_fields_that_the_command_prints",
    (DOCS / "individual-commits.md", "OffsetLedger"): (
        f"{BLOCKS}::test_the_ledger_skips_finished_records_and_returns_the_commit"
    ),
    (DOCS / "install.md", "kafka-share-proxy check"): f"{START}::{FIRST}",
    (DOCS / "install.md", "exposure: sni"): f"{BLOCKS}::test_the_settings_of_one_port_are_valid",
    (DOCS / "operate.md", "kafka-share-proxy trace"): (
        "tests/stock/test_client_trace.py::test_the_commands_of_the_page_trace_a_stock_client"
    ),
    (DOCS / "queues.md", "share.redelivery.delay.max.ms"): (
        f"{BLOCKS}::test_the_settings_of_a_queue_are_set_with_the_stock_tool"
    ),
    (DOCS / "queues.md", "share.delivery.count.limit"): f"{QUEUES}::{IN_ORDER}",
    (DOCS / "queues.md", "ShareConsumer("): f"{QUEUES}::{IN_ORDER}",
    (DOCS / "queues.md", "open_share_consumer"): f"{QUEUES}::{IN_ORDER}",
    (DOCS / "queues.md", "public class Worker"): f"{QUEUES}::{IN_ORDER}",
    (DOCS / "secure.md", "client_tls"): f"{BLOCKS}::test_the_settings_of_the_page_on_security_are_valid",
    (DOCS / "share-groups.md", "KafkaShareConsumer"): f"{SHARE}::test_the_member_prints_and_settles_all_records",
    (DOCS / "share-groups.md", "kgo.ShareGroup"): f"{SHARE}::test_the_member_prints_and_settles_all_records",
    (DOCS / "share-groups.md", "rd_kafka_share_poll"): f"{SHARE}::test_the_member_prints_and_settles_all_records",
    (DOCS / "share-groups.md", "kafka-console-share-consumer.sh"): (
        f"{SHARE}::test_the_member_prints_and_settles_all_records"
    ),
    (DOCS / "share-groups.md", "kafka-configs.sh"): (
        f"{SHARE}::test_the_settings_are_set_and_the_tools_show_and_delete_the_group"
    ),
    (DOCS / "share-groups.md", "kafka-share-groups.sh"): (
        f"{SHARE}::test_the_settings_are_set_and_the_tools_show_and_delete_the_group"
    ),
    (DOCS / "spark.md", "pipeline compact"): "tests/long/pipeline_listed.py::test_every_listed_command_does_its_work",
    (DOCS / "spark.md", "$ kafka-share-proxy pipeline demo"): (
        f"{SPARK}::test_the_demonstration_prints_the_steps_that_the_page_shows"
    ),
    (DOCS / "spark.md", "spark-submit"): (
        "tests/long/pipeline_installed.py::test_jobs_run_on_executors_that_have_nothing_but_what_was_packaged"
    ),
    (DOCS / "spark.md", 'format("keyrange")'): f"{SPARK}::test_a_topic_is_read_by_key_range",
    (DOCS / "spark.md", "ShareStream("): (
        f"{SPARK}::test_records_of_a_share_group_are_filtered_written_and_acknowledged"
    ),
    (
        DOCS / "start.md",
        "python3 -m venv",
    ): "tests/docs/test_installation.py::test_a_checkout_is_installed_with_its_command",
    (DOCS / "start.md", "kafka_share_proxy-*.whl"): (
        "tests/long/first_steps.py::test_a_stranger_with_the_wheel_is_at_work_by_the_page_alone"
    ),
    (DOCS / "start.md", "conformance target"): (
        "tests/docs/test_start.py::test_the_cluster_in_memory_is_enough_for_the_proxy_to_serve_share_groups"
    ),
    (DOCS / "start.md", "kafka-share-proxy check"): f"{START}::test_check_reports_the_cluster_and_changes_nothing",
    (DOCS / "start.md", "kafka-share-proxy serve"): (
        f"{START}::test_two_workers_share_the_queue_and_the_group_is_shown"
    ),
    (DOCS / "start.md", "ShareConsumer("): f"{START}::test_two_workers_share_the_queue_and_the_group_is_shown",
    (DOCS / "start.md", "AdminClient("): f"{START}::test_two_workers_share_the_queue_and_the_group_is_shown",
    (DOCS / "start.md", "groups workers"): f"{START}::test_two_workers_share_the_queue_and_the_group_is_shown",
    (DOCS / "testing.md", "[testing]"): (
        "tests/long/first_steps.py::test_a_stranger_tests_an_application_by_the_page_alone"
    ),
    (DOCS / "testing.md", "def test_a_lock_expires("): f"{RECIPES}::test_the_python_recipes_pass",
    (DOCS / "testing.md", "async_kafka_cluster"): f"{RECIPES}::test_the_python_recipes_pass",
    (
        DOCS / "testing.md",
        "--until-stdin-closes\n{",
    ): f"{RECIPES}::test_the_command_prints_what_the_page_shows_and_accepts_its_requests",
    (
        DOCS / "testing.md",
        '"$CONTROL/report"',
    ): f"{RECIPES}::test_the_command_prints_what_the_page_shows_and_accepts_its_requests",
    (DOCS / "testing.md", "seed: 7"): f"{RECIPES}::test_the_scenario_of_the_page_is_valid",
    (DOCS / "testing.md", "class WorkerTest"): f"{RECIPES}::test_the_java_recipe_passes",
    (DOCS / "testing.md", "package worker"): f"{RECIPES}::test_the_go_recipe_passes",
    (DOCS / "testing.md", "require('kafkajs')"): f"{RECIPES}::test_the_node_recipe_passes",
    (DOCS / "trio.md", "async with open_consumer(\n"): (
        f"{TRIO}::test_ctrl_c_ends_a_program_in_one_line_and_leaves_the_group"
    ),
    (DOCS / "trio.md", "open_share_consumer("): f"{TRIO}::test_ctrl_c_ends_a_program_in_one_line_and_leaves_the_group",
    (DOCS / "trio.md", "delay_revoke"): f"{BLOCKS}::test_a_revocation_is_delayed_until_busy_partitions_are_finished",
    (DOCS / "views.md", "Consumer("): f"{STOCK}::test_the_program_reads_a_view_that_does_not_exist_yet",
    (DOCS / "views.md", '"murmur2-32"'): f"{STOCK}::test_the_plan_is_one",
}
"""(Document, text that one of its code blocks contains) -> the test that runs the block."""
PICTURES = ("unchanged clients",)
"""Blocks that are drawings."""


def code_blocks(document: Path) -> list[str]:
    """Return the fenced blocks of a document that a reader may copy."""
    blocks = documents.FENCE.findall(document.read_text(encoding="utf-8"))
    return [code for info, code in blocks if not info.startswith("{") and not any(text in code for text in PICTURES)]


@pytest.mark.parametrize("document", documents.ALL, ids=lambda path: path.name)
def test_each_code_block_is_run_by_one_test(document: Path) -> None:
    texts = [text for document_name, text in RUN_BY if document_name == document]
    blocks = code_blocks(document)
    for code in blocks:
        matching = [text for text in texts if text in code]
        assert len(matching) == 1, (matching, code)
    assert len(blocks) == len(texts)


@pytest.mark.parametrize("test", sorted(set(RUN_BY.values())))
def test_each_test_that_is_named_exists(test: str) -> None:
    file, name = test.split("::")
    tree = ast.parse((CHECKOUT / file).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    assert name in {each.name for each in functions}


@pytest.mark.parametrize("document", documents.ALL, ids=lambda path: path.name)
def test_code_is_fenced(document: Path) -> None:
    """A block that is only indented would be in no table."""
    text = documents.FENCE.sub("", document.read_text(encoding="utf-8"))
    assert re.findall(r"(?:^|\n)\n    .*", text) == []
