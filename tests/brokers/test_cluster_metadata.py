"""ClusterMetadata: merged Metadata responses."""

from math import inf
from pathlib import Path

import pytest
from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata, Leader
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.values import UNKNOWN_NODE, ZERO_UUID, Address

GOLDEN = Path(__file__).parents[1] / "golden"
METADATA = registry.message("MetadataResponse")
A, B = bytes(15) + b"a", bytes(15) + b"b"


def topic(name, topic_id, *leaders, error=0):
    """Build partitions as (leader, epoch), in reverse order: responses need not be sorted."""
    partitions = [
        METADATA.MetadataResponsePartition(partition_index=i, leader_id=node, leader_epoch=epoch)
        for i, (node, epoch) in enumerate(leaders)
    ]
    return METADATA.MetadataResponseTopic(name=name, topic_id=topic_id, partitions=partitions[::-1], error_code=error)


def metadata(*topics, brokers=((1, "one", 9092), (2, "two", 9092))):
    listed = [METADATA.MetadataResponseBroker(node_id=n, host=h, port=p) for n, h, p in brokers]
    return METADATA(brokers=listed, topics=list(topics), cluster_id="cluster")


@pytest.fixture
def view():
    view = ClusterMetadata()
    view.fold(metadata(topic("a", A, (1, 5), (2, 7)), topic("b", B, (1, 0))), now=10.0)
    return view


def test_received_metadata_are_kept(view):
    assert view.cluster_id == "cluster"
    assert view.brokers[2].address == Address("two", 9092)
    assert view.node_at(Address("two", 9092)) == 2
    assert view.node_at(Address("two", 9093)) == UNKNOWN_NODE
    assert view.topic("a").partitions == 2
    assert view.topic_by_id(A) is view.topic("a")
    assert view.leader(A, 1) == Leader(2, 7)
    assert view.leader(A, 2) is None
    assert view.leader(A, -1) is None
    assert view.leader(bytes(16), 0) is None


@pytest.mark.parametrize("release", ["3.9.1", "4.3.0"])
@pytest.mark.parametrize("version", range(13))
def test_it_folds_the_responses_of_real_brokers(release, version):
    frame = bytes.fromhex((GOLDEN / release / f"Metadata.v{version}.hex").read_text())
    view = ClusterMetadata()
    view.fold(frames.decode_response(3, version, frame)[1], now=0.0)
    orders = view.topic("orders")
    assert [leader.node_id for leader in orders.leaders] == [1, 1]
    assert (orders.topic_id == ZERO_UUID) == (version < 10)
    assert view.brokers[1].rack == ("rack-a" if version else None)
    assert view.topic_by_id(ZERO_UUID) is None


def test_a_response_replaces_the_topics_that_it_lists(view):
    view.fold(metadata(topic("a", A, (2, 6), (2, 7), (1, 0))), now=12.0)
    assert view.topic("a").leaders == (Leader(2, 6), Leader(2, 7), Leader(1, 0))
    assert (view.age("a", now=15.0), view.age("b", now=15.0)) == (3.0, 5.0)


def test_an_older_leader_epoch_does_not_come_back(view):
    """A broker that lags would direct all clients to the old leader again."""
    view.fold(metadata(topic("a", A, (2, 4), (1, 8))), now=11.0)
    assert view.topic("a").leaders == (Leader(1, 5), Leader(1, 8))


def test_a_response_without_epochs_is_accepted_unchanged(view):
    view.fold(metadata(topic("a", A, (2, -1), (1, -1))), now=11.0)
    assert view.topic("a").leaders == (Leader(2, -1), Leader(1, -1))


def test_a_topic_made_anew_starts_with_its_own_epochs(view):
    view.fold(metadata(topic("a", B[:-1] + b"c", (2, 0))), now=11.0)
    assert view.topic("a").leaders == (Leader(2, 0),)
    assert view.topic_by_id(A) is None


def test_a_deleted_topic_is_forgotten_by_name_and_by_id(view):
    view.fold(metadata(topic("a", ZERO_UUID, error=3)), now=11.0)
    for _ in range(2):
        view.fold(metadata(topic(None, B, error=100)), now=11.0)
    assert list(view.topics()) == []
    assert view.topic_by_id(A) is None


def test_an_asker_without_rights_does_not_change_what_others_know(view):
    view.fold(metadata(topic("a", ZERO_UUID, error=29)), now=99.0)
    assert view.leader(A, 0) == Leader(1, 5)
    assert view.age("a", now=99.0) == 89.0


def test_brokers_that_left_are_forgotten_but_not_for_an_empty_list(view):
    view.fold(metadata(brokers=()), now=11.0)
    assert set(view.brokers) == {1, 2}
    view.fold(metadata(brokers=((2, "two", 9093),)), now=12.0)
    assert set(view.brokers) == {2}
    assert view.node_at(Address("one", 9092)) == UNKNOWN_NODE
    assert view.node_at(Address("two", 9093)) == 2


def test_stale_topics_have_no_age_until_they_are_reported_again(view):
    view.set_stale("a", "nobody")
    assert view.is_stale("a")
    assert view.is_stale("nobody")
    assert not view.is_stale("b")
    assert view.age("a", now=10.0) == inf
    assert view.topic_since("a", -inf) is None
    view.fold(metadata(topic("a", A, (1, 5), (2, 7))), now=11.0)
    assert not view.is_stale("a")
    assert view.topic_since("a", 11.0) is view.topic("a")
    assert view.topic_since("a", 11.1) is view.topic_since("nobody", 0.0) is None
    view.set_stale()
    assert view.is_stale("a")
    assert view.is_stale("b")


def test_a_broken_response_does_not_make_the_view_grow_without_bound(view):
    odd = METADATA.MetadataResponsePartition(partition_index=2**31 - 1, leader_id=1, leader_epoch=0)
    view.fold(metadata(METADATA.MetadataResponseTopic(name="odd", topic_id=A, partitions=[odd])), now=1.0)
    assert view.topic("odd").partitions < 2000


def test_a_gap_in_a_response_is_a_partition_without_leader(view):
    parts = [METADATA.MetadataResponsePartition(partition_index=i, leader_id=1, leader_epoch=0) for i in (0, 2)]
    view.fold(metadata(METADATA.MetadataResponseTopic(name="gap", topic_id=B, partitions=parts)), now=1.0)
    assert view.topic("gap").leaders == (Leader(1, 0), Leader(-1, -1), Leader(1, 0))
