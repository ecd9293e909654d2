"""Every figure of /metrics can be read."""

from types import SimpleNamespace

from kafka_share_proxy.app.observing import metrics as figures
from kafka_share_proxy.app.observing.observe import LogNotes
from kafka_share_proxy.feature.metrics import Metrics
from kafka_share_proxy.forwarding.plane_statistics import PlaneStatistics

from tests.app.serving.test_composition import A, config, parts, snapshot


def statistics() -> PlaneStatistics:
    numbers = dict.fromkeys((*figures.PLANE_GAUGES, *figures.PLANE_COUNTERS), 7)
    return PlaneStatistics(**numbers, ended={"connection-closed": 3})


def test_all_figures_are_shown_with_their_values() -> None:
    """Nothing the plane counts is left out, and nothing raises while it is idle."""
    serving_parts = parts(config())
    serving_parts.open(snapshot({0: A}))
    serving_parts.plane = SimpleNamespace(statistics=statistics)
    notes = LogNotes(lambda *_: None)
    notes("serving")
    serving_parts.served_times.observe(78, 0.2)
    metrics = Metrics()
    figures.of_events(metrics, notes)
    figures.of_parts(metrics, serving_parts)
    page = metrics.render().decode()
    assert 'ksp_events_total{event="serving"} 1.0' in page
    assert 'ksp_ended_total{reason="connection-closed"} 3.0' in page
    for name in figures.PLANE_GAUGES:
        assert f"ksp_{name} 7.0" in page
    for name in figures.PLANE_COUNTERS:
        assert f"ksp_{name.removesuffix('_total')}_total 7.0" in page
    assert "ksp_brokers 1.0" in page
    assert 'ksp_served_request_seconds_bucket{api="ShareFetch",le="0.1"} 0.0' in page
    assert 'ksp_served_request_seconds_bucket{api="ShareFetch",le="0.25"} 1.0' in page
    assert "ksp_share_groups 0.0" in page
    assert "ksp_share_partitions_resting 0.0" in page


def test_figures_of_state_and_of_a_fleet_are_shown_where_there_is_one() -> None:
    page = page_of_state(local=True)
    for line in ("state_partitions 2.0", "state_appends_total 7.0", "peers 1.0", "peer_requests 2.0"):
        assert f"ksp_{line}" in page
    assert "ksp_peer_clients 3.0" in page
    assert 'ksp_state_topic_unsafe{topic="__proxy_share_state"} 1.0' in page
    assert 'ksp_state_topic_risks{risk="min-insync-replicas",topic="__proxy_share_state"} 1.0' in page


def test_figures_of_state_are_shown_where_share_groups_live_upstream() -> None:
    """Individual commits are stored as well."""
    page = page_of_state(local=False)
    assert "ksp_state_appends_total 7.0" in page
    assert "ksp_share_groups" not in page


def page_of_state(*, local: bool) -> str:
    """Figures of a proxy that keeps state in a topic."""
    serving_parts = parts(config(), local=local)
    serving_parts.open(snapshot({0: A}))
    serving_parts.plane = SimpleNamespace(statistics=statistics)
    links = SimpleNamespace(linked=["other:1"], requests_waiting=2, far_clients=3)
    guard = SimpleNamespace(topic="__proxy_share_state", unsafe="it is deleted", risks={"min-insync-replicas": "x"})
    hosted = [SimpleNamespace(guard=guard)]
    serving_parts.home = SimpleNamespace(served={1, 2}, appends=7, links=links, states=hosted)
    metrics = Metrics()
    figures.of_parts(metrics, serving_parts)
    return metrics.render().decode()


def test_every_field_of_the_plane_s_statistics_is_shown() -> None:
    """A new figure of the data plane is shown, or this says so."""
    shown = {*figures.PLANE_GAUGES, *figures.PLANE_COUNTERS, "ended"}
    assert set(PlaneStatistics.__dataclass_fields__) == shown


def test_share_figures_are_absent_where_share_groups_live_upstream() -> None:
    """A constant 0 would look like trouble."""
    serving_parts = parts(config(), local=False)
    metrics = Metrics()
    serving_parts.plane = SimpleNamespace(statistics=statistics)
    figures.of_parts(metrics, serving_parts)
    assert b"ksp_share" not in metrics.render()
