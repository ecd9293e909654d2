"""All cases: importing this module declares them."""

from __future__ import annotations

from kafka_share_proxy.conformance.suite.cases import CASES
from kafka_share_proxy.conformance.suite.protocol import api_versions as api_versions
from kafka_share_proxy.conformance.suite.protocol import classic_groups as classic_groups
from kafka_share_proxy.conformance.suite.protocol import cluster_metadata as cluster_metadata
from kafka_share_proxy.conformance.suite.protocol import committed_offsets as committed_offsets
from kafka_share_proxy.conformance.suite.protocol import consumer_groups as consumer_groups
from kafka_share_proxy.conformance.suite.protocol import dead_letters as dead_letters
from kafka_share_proxy.conformance.suite.protocol import fetching as fetching
from kafka_share_proxy.conformance.suite.protocol import individual_commits as individual_commits
from kafka_share_proxy.conformance.suite.protocol import log_offsets as log_offsets
from kafka_share_proxy.conformance.suite.protocol import other_coordinators as other_coordinators
from kafka_share_proxy.conformance.suite.protocol import producing as producing
from kafka_share_proxy.conformance.suite.protocol import queue_delay as queue_delay
from kafka_share_proxy.conformance.suite.protocol import queue_order as queue_order
from kafka_share_proxy.conformance.suite.protocol import several_nodes as several_nodes
from kafka_share_proxy.conformance.suite.protocol import share_acknowledging as share_acknowledging
from kafka_share_proxy.conformance.suite.protocol import share_acquiring as share_acquiring
from kafka_share_proxy.conformance.suite.protocol import share_descriptions as share_descriptions
from kafka_share_proxy.conformance.suite.protocol import share_limits as share_limits
from kafka_share_proxy.conformance.suite.protocol import share_locks as share_locks
from kafka_share_proxy.conformance.suite.protocol import share_membership as share_membership
from kafka_share_proxy.conformance.suite.protocol import share_offsets as share_offsets
from kafka_share_proxy.conformance.suite.protocol import share_session_partitions as share_session_partitions
from kafka_share_proxy.conformance.suite.protocol import share_sessions as share_sessions
from kafka_share_proxy.conformance.suite.protocol import transactions as transactions
from kafka_share_proxy.conformance.suite.protocol import views as views

ALL_CASES = CASES
"""Every case, by the order of the modules above."""
