"""Figures of share groups on the page that Prometheus scrapes: the names that Kafka's map to."""

from __future__ import annotations

from kafka_share_proxy.feature.metrics import Metrics
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.sharegroups import metrics as share_group_metrics
from kafka_share_proxy.sharegroups.counters import OTHERS
from kafka_share_proxy.sharegroups.lag import ShareLag
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey

from tests.support.ports import World

ACCEPT, RELEASE = 1, 2


def world_and_page(**limits):
    """A world, and what renders its page."""
    world = World(limits=Limits(**limits))
    metrics = Metrics()
    share_group_metrics.add(metrics, world.services, ShareLag(world.services))
    return world, lambda: metrics.render().decode().splitlines()


def test_group_figures_have_their_names_and_labels() -> None:
    world, page = world_and_page()
    world.configure("g", share_auto_offset_reset="earliest")
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    member.fetch(topic)
    member.acknowledge({(topic.topic_id, 0): [(4, 9, [ACCEPT])]})
    lines = page()
    for line in (
        'ksp_share_record_acknowledgements_total{ack_type="accept",group="g"} 6.0',
        'ksp_share_record_acknowledgements_total{ack_type="renew",group="g"} 0.0',
        f'ksp_share_record_acknowledgements_total{{ack_type="accept",group="{OTHERS}"}} 0.0',
        'ksp_share_acquisition_lock_timeouts_total{group="g"} 0.0',
        'ksp_share_in_flight_messages{group="g"} 10.0',
        'ksp_share_in_flight_batches{group="g"} 2.0',
        'ksp_share_in_flight_batch_messages_bucket{group="g",le="8.0"} 0.0',
        'ksp_share_in_flight_batch_messages_bucket{group="g",le="16.0"} 1.0',
        'ksp_share_in_flight_batch_messages_sum{group="g"} 10.0',
        'ksp_share_topic_partitions_acquire_time_seconds_count{group="g"} 1.0',
        'ksp_share_request_topic_partitions_fetch_ratio_sum{group="g"} 1.0',
        'ksp_share_fetch_lock_time_seconds_count{group="g"} 1.0',
        "ksp_share_partition_load_time_seconds_count 1.0",
        "ksp_share_state_write_seconds_count 2.0",
        "ksp_share_sessions 1.0",
        "ksp_share_session_partitions 1.0",
        "ksp_share_session_evictions_total 0.0",
    ):
        assert line in lines, line


def test_a_page_is_made_in_steps_however_many_share_partitions_there_are() -> None:
    """None of them looks at more than SHARES_A_STEP share partitions, or shows more than one figure."""
    world = World()
    metrics = Metrics()
    share_group_metrics.add(metrics, world.services, ShareLag(world.services))
    coordinator = world.services.coordinator
    for partition in range(3 * share_group_metrics.SHARES_A_STEP):
        key = ShareKey("g", b"t" * 16, partition)
        coordinator.add_share(key, coordinator.new_partition(key, 0), 1)
    steps = list(metrics.steps())
    assert steps[:3] == [b"", b"", b""]
    assert all(step.count(b"# TYPE ksp_") <= 1 for step in steps)
    assert b"".join(steps).count(b"# TYPE ksp_") == len(metrics._metrics)


def test_sessions_and_windows_are_those_of_now() -> None:
    """[ShareSessionsCount, SharePartitionsCount, ShareSessionEvictionsPerSec, InFlightMessageCount]"""
    world, page = world_and_page()
    world.configure("g", share_auto_offset_reset="earliest")
    topic = world.cluster.create("t", leaders=(1, 1))
    world.cluster.produce(topic, 10)
    member = world.member()
    member.fetch(topic)
    assert "ksp_share_session_partitions 2.0" in page()
    member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    member.connection.close()
    lines = page()
    assert 'ksp_share_in_flight_messages{group="g"} 0.0' in lines
    for line in ("ksp_share_sessions 0.0", "ksp_share_session_partitions 0.0", "ksp_share_session_evictions_total 1.0"):
        assert line in lines


def test_windows_of_groups_beyond_the_bound_are_one_figure_and_deleted_groups_are_forgotten() -> None:
    world, page = world_and_page(metrics_groups=1)
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    for group_id in ("a", "b", "c"):
        world.configure(group_id, share_auto_offset_reset="earliest")
        world.member(group_id=group_id).fetch(topic)
    assert f'ksp_share_in_flight_messages{{group="{OTHERS}"}} 20.0' in page()
    world.services.coordinator.remove_group("a")
    for key in world.services.coordinator.keys_of("a"):
        world.services.coordinator.remove_share(key)
    world.member(group_id="b", member_id="m2").fetch(topic, wait_ms=0)
    lines = page()
    assert not [line for line in lines if 'group="a"' in line]
    assert 'ksp_share_in_flight_messages{group="b"} 10.0' in page()


def test_lag_is_shown_by_group_after_a_look_up_and_unknown_before() -> None:
    """[KIP-1226]"""
    world = World()
    metrics = Metrics()
    share_group_metrics.add(metrics, world.services, ShareLag(world.services))
    world.services.coordinator.add_group("g")
    world.configure("g", share_auto_offset_reset="earliest")
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    member.fetch(topic)
    assert 'ksp_share_lag_partitions_unknown{group="g"} 1.0' in metrics.render().decode()
    member.acknowledge({(topic.topic_id, 0): [(4, 9, [ACCEPT])]})
    world.cluster.produce(topic, 7)
    (lookup,) = metrics.lookups
    assert lookup().done
    page = metrics.render().decode()
    assert 'ksp_share_group_lag{group="g"} 11.0' in page
    assert 'ksp_share_lag_partitions_unknown{group="g"} 0.0' in page


def test_moves_of_groups_are_counted_by_outcome() -> None:
    world, page = world_and_page()
    world.services.figures.moves["refused"] += 2
    world.services.figures.held_back_s.observe(0.3)
    lines = page()
    for line in (
        'ksp_share_group_moves_total{outcome="handed_over"} 0.0',
        'ksp_share_group_moves_total{outcome="refused"} 2.0',
        "ksp_share_group_held_back_seconds_count 1.0",
    ):
        assert line in lines
