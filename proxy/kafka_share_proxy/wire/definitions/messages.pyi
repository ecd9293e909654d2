# Written by `python -m kafka_share_proxy.wire.definitions.stubs` from schemas/: change the definitions, not this file.
"""What mypy knows of the message classes: their fields in all versions, with the defaults of the definitions."""

from kafka_share_proxy.wire.codec.frames import Pieces
from kafka_share_proxy.wire.codec.primitives import Buffer, Tags
from kafka_share_proxy.wire.definitions.message_classes import Message as Message
from kafka_share_proxy.wire.definitions.message_classes import RequestMessage as RequestMessage

class _Records:
    def __get__(self, message: object, kind: type | None = None) -> Buffer | None: ...
    def __set__(self, message: object, records: Buffer | Pieces | None) -> None: ...

class AbortedTxn(Message):
    producer_id: int = 0
    first_offset: int = 0
    last_offset: int = 0
    last_stable_offset: int = 0
    unknown_tags: Tags = ()

class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_tags: Tags = ()

class AddOffsetsToTxnRequest(RequestMessage[AddOffsetsToTxnResponse]):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ""
    unknown_tags: Tags = ()

class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    results_by_transaction: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult] = ...
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...
    unknown_tags: Tags = ()

    class AddPartitionsToTxnPartitionResult(Message):
        partition_index: int = 0
        partition_error_code: int = 0
        unknown_tags: Tags = ()

    class AddPartitionsToTxnTopicResult(Message):
        name: str = ""
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = ...
        unknown_tags: Tags = ()

    class AddPartitionsToTxnResult(Message):
        transactional_id: str = ""
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...
        unknown_tags: Tags = ()

class AddPartitionsToTxnRequest(RequestMessage[AddPartitionsToTxnResponse]):
    transactions: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction] = ...
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...
    unknown_tags: Tags = ()

    class AddPartitionsToTxnTopic(Message):
        name: str = ""
        partitions: list[int] = ...
        unknown_tags: Tags = ()

    class AddPartitionsToTxnTransaction(Message):
        transactional_id: str = ""
        producer_id: int = 0
        producer_epoch: int = 0
        verify_only: bool = False
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...
        unknown_tags: Tags = ()

class AddRaftVoterResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    unknown_tags: Tags = ()

class AddRaftVoterRequest(RequestMessage[AddRaftVoterResponse]):
    cluster_id: str | None = ""
    timeout_ms: int = 0
    voter_id: int = 0
    voter_directory_id: bytes = ...
    listeners: list[AddRaftVoterRequest.Listener] = ...
    ack_when_committed: bool = True
    unknown_tags: Tags = ()

    class Listener(Message):
        name: str = ""
        host: str = ""
        port: int = 0
        unknown_tags: Tags = ()

class AllocateProducerIdsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id_start: int = 0
    producer_id_len: int = 0
    unknown_tags: Tags = ()

class AllocateProducerIdsRequest(RequestMessage[AllocateProducerIdsResponse]):
    broker_id: int = 0
    broker_epoch: int = -1
    unknown_tags: Tags = ()

class AlterClientQuotasResponse(Message):
    throttle_time_ms: int = 0
    entries: list[AlterClientQuotasResponse.EntryData] = ...
    unknown_tags: Tags = ()

    class EntityData(Message):
        entity_type: str = ""
        entity_name: str | None = ""
        unknown_tags: Tags = ()

    class EntryData(Message):
        error_code: int = 0
        error_message: str | None = ""
        entity: list[AlterClientQuotasResponse.EntityData] = ...
        unknown_tags: Tags = ()

class AlterClientQuotasRequest(RequestMessage[AlterClientQuotasResponse]):
    entries: list[AlterClientQuotasRequest.EntryData] = ...
    validate_only: bool = False
    unknown_tags: Tags = ()

    class EntityData(Message):
        entity_type: str = ""
        entity_name: str | None = ""
        unknown_tags: Tags = ()

    class OpData(Message):
        key: str = ""
        value: float = 0.0
        remove: bool = False
        unknown_tags: Tags = ()

    class EntryData(Message):
        entity: list[AlterClientQuotasRequest.EntityData] = ...
        ops: list[AlterClientQuotasRequest.OpData] = ...
        unknown_tags: Tags = ()

class AlterConfigsResponse(Message):
    throttle_time_ms: int = 0
    responses: list[AlterConfigsResponse.AlterConfigsResourceResponse] = ...
    unknown_tags: Tags = ()

    class AlterConfigsResourceResponse(Message):
        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""
        unknown_tags: Tags = ()

class AlterConfigsRequest(RequestMessage[AlterConfigsResponse]):
    resources: list[AlterConfigsRequest.AlterConfigsResource] = ...
    validate_only: bool = False
    unknown_tags: Tags = ()

    class AlterableConfig(Message):
        name: str = ""
        value: str | None = ""
        unknown_tags: Tags = ()

    class AlterConfigsResource(Message):
        resource_type: int = 0
        resource_name: str = ""
        configs: list[AlterConfigsRequest.AlterableConfig] = ...
        unknown_tags: Tags = ()

class AlterPartitionResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    topics: list[AlterPartitionResponse.TopicData] = ...
    unknown_tags: Tags = ()

    class PartitionData(Message):
        partition_index: int = 0
        error_code: int = 0
        leader_id: int = 0
        leader_epoch: int = 0
        isr: list[int] = ...
        leader_recovery_state: int = 0
        partition_epoch: int = 0
        unknown_tags: Tags = ()

    class TopicData(Message):
        topic_id: bytes = ...
        partitions: list[AlterPartitionResponse.PartitionData] = ...
        unknown_tags: Tags = ()

class AlterPartitionRequest(RequestMessage[AlterPartitionResponse]):
    broker_id: int = 0
    broker_epoch: int = -1
    topics: list[AlterPartitionRequest.TopicData] = ...
    unknown_tags: Tags = ()

    class BrokerState(Message):
        broker_id: int = 0
        broker_epoch: int = -1
        unknown_tags: Tags = ()

    class PartitionData(Message):
        partition_index: int = 0
        leader_epoch: int = 0
        new_isr: list[int] = ...
        new_isr_with_epochs: list[AlterPartitionRequest.BrokerState] = ...
        leader_recovery_state: int = 0
        partition_epoch: int = 0
        unknown_tags: Tags = ()

    class TopicData(Message):
        topic_id: bytes = ...
        partitions: list[AlterPartitionRequest.PartitionData] = ...
        unknown_tags: Tags = ()

class AlterPartitionReassignmentsResponse(Message):
    throttle_time_ms: int = 0
    allow_replication_factor_change: bool = True
    error_code: int = 0
    error_message: str | None = ""
    responses: list[AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = ...
    unknown_tags: Tags = ()

    class ReassignablePartitionResponse(Message):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = ""
        unknown_tags: Tags = ()

    class ReassignableTopicResponse(Message):
        name: str = ""
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = ...
        unknown_tags: Tags = ()

class AlterPartitionReassignmentsRequest(RequestMessage[AlterPartitionReassignmentsResponse]):
    timeout_ms: int = 60000
    allow_replication_factor_change: bool = True
    topics: list[AlterPartitionReassignmentsRequest.ReassignableTopic] = ...
    unknown_tags: Tags = ()

    class ReassignablePartition(Message):
        partition_index: int = 0
        replicas: list[int] | None = None
        unknown_tags: Tags = ()

    class ReassignableTopic(Message):
        name: str = ""
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = ...
        unknown_tags: Tags = ()

class AlterReplicaLogDirsResponse(Message):
    throttle_time_ms: int = 0
    results: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = ...
    unknown_tags: Tags = ()

    class AlterReplicaLogDirPartitionResult(Message):
        partition_index: int = 0
        error_code: int = 0
        unknown_tags: Tags = ()

    class AlterReplicaLogDirTopicResult(Message):
        topic_name: str = ""
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = ...
        unknown_tags: Tags = ()

class AlterReplicaLogDirsRequest(RequestMessage[AlterReplicaLogDirsResponse]):
    dirs: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir] = ...
    unknown_tags: Tags = ()

    class AlterReplicaLogDirTopic(Message):
        name: str = ""
        partitions: list[int] = ...
        unknown_tags: Tags = ()

    class AlterReplicaLogDir(Message):
        path: str = ""
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = ...
        unknown_tags: Tags = ()

class AlterShareGroupOffsetsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic] = ...
    unknown_tags: Tags = ()

    class AlterShareGroupOffsetsResponsePartition(Message):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = None
        unknown_tags: Tags = ()

    class AlterShareGroupOffsetsResponseTopic(Message):
        topic_name: str = ""
        topic_id: bytes = ...
        partitions: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition] = ...
        unknown_tags: Tags = ()

class AlterShareGroupOffsetsRequest(RequestMessage[AlterShareGroupOffsetsResponse]):
    group_id: str = ""
    topics: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic] = ...
    unknown_tags: Tags = ()

    class AlterShareGroupOffsetsRequestPartition(Message):
        partition_index: int = 0
        start_offset: int = 0
        unknown_tags: Tags = ()

    class AlterShareGroupOffsetsRequestTopic(Message):
        topic_name: str = ""
        partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition] = ...
        unknown_tags: Tags = ()

class AlterUserScramCredentialsResponse(Message):
    throttle_time_ms: int = 0
    results: list[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult] = ...
    unknown_tags: Tags = ()

    class AlterUserScramCredentialsResult(Message):
        user: str = ""
        error_code: int = 0
        error_message: str | None = ""
        unknown_tags: Tags = ()

class AlterUserScramCredentialsRequest(RequestMessage[AlterUserScramCredentialsResponse]):
    deletions: list[AlterUserScramCredentialsRequest.ScramCredentialDeletion] = ...
    upsertions: list[AlterUserScramCredentialsRequest.ScramCredentialUpsertion] = ...
    unknown_tags: Tags = ()

    class ScramCredentialDeletion(Message):
        name: str = ""
        mechanism: int = 0
        unknown_tags: Tags = ()

    class ScramCredentialUpsertion(Message):
        name: str = ""
        mechanism: int = 0
        iterations: int = 0
        salt: Buffer = ...
        salted_password: Buffer = ...
        unknown_tags: Tags = ()

class ApiVersionsResponse(Message):
    error_code: int = 0
    api_keys: list[ApiVersionsResponse.ApiVersion] = ...
    throttle_time_ms: int = 0
    supported_features: list[ApiVersionsResponse.SupportedFeatureKey] = ...
    finalized_features_epoch: int = -1
    finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey] = ...
    zk_migration_ready: bool = False
    unknown_tags: Tags = ()

    class ApiVersion(Message):
        api_key: int = 0
        min_version: int = 0
        max_version: int = 0
        unknown_tags: Tags = ()

    class SupportedFeatureKey(Message):
        name: str = ""
        min_version: int = 0
        max_version: int = 0
        unknown_tags: Tags = ()

    class FinalizedFeatureKey(Message):
        name: str = ""
        max_version_level: int = 0
        min_version_level: int = 0
        unknown_tags: Tags = ()

class ApiVersionsRequest(RequestMessage[ApiVersionsResponse]):
    client_software_name: str = ""
    client_software_version: str = ""
    cluster_id: str | None = None
    node_id: int = -1
    unknown_tags: Tags = ()

class AssignReplicasToDirsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    directories: list[AssignReplicasToDirsResponse.DirectoryData] = ...
    unknown_tags: Tags = ()

    class PartitionData(Message):
        partition_index: int = 0
        error_code: int = 0
        unknown_tags: Tags = ()

    class TopicData(Message):
        topic_id: bytes = ...
        partitions: list[AssignReplicasToDirsResponse.PartitionData] = ...
        unknown_tags: Tags = ()

    class DirectoryData(Message):
        id: bytes = ...
        topics: list[AssignReplicasToDirsResponse.TopicData] = ...
        unknown_tags: Tags = ()

class AssignReplicasToDirsRequest(RequestMessage[AssignReplicasToDirsResponse]):
    broker_id: int = 0
    broker_epoch: int = -1
    directories: list[AssignReplicasToDirsRequest.DirectoryData] = ...
    unknown_tags: Tags = ()

    class PartitionData(Message):
        partition_index: int = 0
        unknown_tags: Tags = ()

    class TopicData(Message):
        topic_id: bytes = ...
        partitions: list[AssignReplicasToDirsRequest.PartitionData] = ...
        unknown_tags: Tags = ()

    class DirectoryData(Message):
        id: bytes = ...
        topics: list[AssignReplicasToDirsRequest.TopicData] = ...
        unknown_tags: Tags = ()

class BeginQuorumEpochResponse(Message):
    error_code: int = 0
    topics: list[BeginQuorumEpochResponse.TopicData] = ...
    node_endpoints: list[BeginQuorumEpochResponse.NodeEndpoint] = ...
    unknown_tags: Tags = ()

    class PartitionData(Message):
        partition_index: int = 0
        error_code: int = 0
        leader_id: int = 0
        leader_epoch: int = 0
        unknown_tags: Tags = ()

    class TopicData(Message):
        topic_name: str = ""
        partitions: list[BeginQuorumEpochResponse.PartitionData] = ...
        unknown_tags: Tags = ()

    class NodeEndpoint(Message):
        node_id: int = 0
        host: str = ""
        port: int = 0
        unknown_tags: Tags = ()

class BeginQuorumEpochRequest(RequestMessage[BeginQuorumEpochResponse]):
    cluster_id: str | None = None
    voter_id: int = -1
    topics: list[BeginQuorumEpochRequest.TopicData] = ...
    leader_endpoints: list[BeginQuorumEpochRequest.LeaderEndpoint] = ...
    unknown_tags: Tags = ()

    class PartitionData(Message):
        partition_index: int = 0
        voter_directory_id: bytes = ...
        leader_id: int = 0
        leader_epoch: int = 0
        unknown_tags: Tags = ()

    class TopicData(Message):
        topic_name: str = ""
        partitions: list[BeginQuorumEpochRequest.PartitionData] = ...
        unknown_tags: Tags = ()

    class LeaderEndpoint(Message):
        name: str = ""
        host: str = ""
        port: int = 0
        unknown_tags: Tags = ()

class BrokerHeartbeatResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
    unknown_tags: Tags = ()

class BrokerHeartbeatRequest(RequestMessage[BrokerHeartbeatResponse]):
    broker_id: int = 0
    broker_epoch: int = -1
    current_metadata_offset: int = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: list[bytes] = ...
    cordoned_log_dirs: list[bytes] | None = None
    unknown_tags: Tags = ()

class BrokerRegistrationResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    broker_epoch: int = -1
    unknown_tags: Tags = ()

class BrokerRegistrationRequest(RequestMessage[BrokerRegistrationResponse]):
    broker_id: int = 0
    cluster_id: str = ""
    incarnation_id: bytes = ...
    listeners: list[BrokerRegistrationRequest.Listener] = ...
    features: list[BrokerRegistrationRequest.Feature] = ...
    rack: str | None = ""
    is_migrating_zk_broker: bool = False
    log_dirs: list[bytes] = ...
    previous_broker_epoch: int = -1
    unknown_tags: Tags = ()

    class Listener(Message):
        name: str = ""
        host: str = ""
        port: int = 0
        security_protocol: int = 0
        unknown_tags: Tags = ()

    class Feature(Message):
        name: str = ""
        min_supported_version: int = 0
        max_supported_version: int = 0
        unknown_tags: Tags = ()

class CommittedRangeKey(Message):
    group_id: str = ""
    topic: str = ""
    partition: int = 0
    first: int = 0
    last: int = 0
    unknown_tags: Tags = ()

class CommittedRangeValue(Message):
    topic_id: bytes = ...
    leader_epoch: int = 0
    committed_offset: int = 0
    time_ms: int = 0
    member_id: str = ""
    metadata: str | None = ""
    unknown_tags: Tags = ()

class CommittingGroupKey(Message):
    group_id: str = ""
    unknown_tags: Tags = ()

class CommittingGroupValue(Message):
    time_ms: int = 0
    unknown_tags: Tags = ()

class ConsumerGroupDescribeResponse(Message):
    throttle_time_ms: int = 0
    groups: list[ConsumerGroupDescribeResponse.DescribedGroup] = ...
    unknown_tags: Tags = ()

    class TopicPartitions(Message):
        topic_id: bytes = ...
        topic_name: str = ""
        partitions: list[int] = ...
        unknown_tags: Tags = ()

    class Assignment(Message):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = ...
        unknown_tags: Tags = ()

    class Member(Message):
        member_id: str = ""
        instance_id: str | None = None
        rack_id: str | None = None
        member_epoch: int = 0
        client_id: str = ""
        client_host: str = ""
        subscribed_topic_names: list[str] = ...
        subscribed_topic_regex: str | None = None
        assignment: ConsumerGroupDescribeResponse.Assignment = ...
        target_assignment: ConsumerGroupDescribeResponse.Assignment = ...
        member_type: int = -1
        unknown_tags: Tags = ()

    class DescribedGroup(Message):
        error_code: int = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        group_epoch: int = 0
        assignment_epoch: int = 0
        assignor_name: str = ""
        members: list[ConsumerGroupDescribeResponse.Member] = ...
        authorized_operations: int = -2147483648
        unknown_tags: Tags = ()

class ConsumerGroupDescribeRequest(RequestMessage[ConsumerGroupDescribeResponse]):
    group_ids: list[str] = ...
    include_authorized_operations: bool = False
    unknown_tags: Tags = ()

class ConsumerGroupHeartbeatResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: ConsumerGroupHeartbeatResponse.Assignment | None = None
    unknown_tags: Tags = ()

    class TopicPartitions(Message):
        topic_id: bytes = ...
        partitions: list[int] = ...
        unknown_tags: Tags = ()

    class Assignment(Message):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = ...
        unknown_tags: Tags = ()

class ConsumerGroupHeartbeatRequest(RequestMessage[ConsumerGroupHeartbeatResponse]):
    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None = None
    unknown_tags: Tags = ()

    class TopicPartitions(Message):
        topic_id: bytes = ...
        partitions: list[int] = ...
        unknown_tags: Tags = ()

class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[ConsumerProtocolAssignment.TopicPartition] = ...
    user_data: Buffer | None = None
    unknown_tags: Tags = ()

    class TopicPartition(Message):
        topic: str = ""
        partitions: list[int] = ...
        unknown_tags: Tags = ()

class ConsumerProtocolSubscription(Message):
    topics: list[str] = ...
    user_data: Buffer | None = None
    owned_partitions: list[ConsumerProtocolSubscription.TopicPartition] = ...
    generation_id: int = -1
    rack_id: str | None = None
    unknown_tags: Tags = ()

    class TopicPartition(Message):
        topic: str = ""
        partitions: list[int] = ...
        unknown_tags: Tags = ()

class ControlRecordTypeSchema(Message):
    type: int = 0
    unknown_tags: Tags = ()

class ControlledShutdownResponse(Message):
    unknown_tags: Tags = ()

class ControlledShutdownRequest(RequestMessage[ControlledShutdownResponse]):
    unknown_tags: Tags = ()

class ControllerRegistrationResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    unknown_tags: Tags = ()

class ControllerRegistrationRequest(RequestMessage[ControllerRegistrationResponse]):
    controller_id: int = 0
    incarnation_id: bytes = ...
    zk_migration_ready: bool = False
    listeners: list[ControllerRegistrationRequest.Listener] = ...
    features: list[ControllerRegistrationRequest.Feature] = ...
    unknown_tags: Tags = ()

    class Listener(Message):
        name: str = ""
        host: str = ""
        port: int = 0
        security_protocol: int = 0
        unknown_tags: Tags = ()

    class Feature(Message):
        name: str = ""
        min_supported_version: int = 0
        max_supported_version: int = 0
        unknown_tags: Tags = ()

class CooperativeStickyUserData(Message):
    generation: int = -1
    unknown_tags: Tags = ()

class CreateAclsResponse(Message):
    throttle_time_ms: int = 0
    results: list[CreateAclsResponse.AclCreationResult] = ...
    unknown_tags: Tags = ()

    class AclCreationResult(Message):
        error_code: int = 0
        error_message: str | None = ""
        unknown_tags: Tags = ()

class CreateAclsRequest(RequestMessage[CreateAclsResponse]):
    creations: list[CreateAclsRequest.AclCreation] = ...
    unknown_tags: Tags = ()

    class AclCreation(Message):
        resource_type: int = 0
        resource_name: str = ""
        resource_pattern_type: int = 3
        principal: str = ""
        host: str = ""
        operation: int = 0
        permission_type: int = 0
        unknown_tags: Tags = ()

class CreateDelegationTokenResponse(Message):
    error_code: int = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""
    issue_timestamp_ms: int = 0
    expiry_timestamp_ms: int = 0
    max_timestamp_ms: int = 0
    token_id: str = ""
    hmac: Buffer = ...
    throttle_time_ms: int = 0
    unknown_tags: Tags = ()

class CreateDelegationTokenRequest(RequestMessage[CreateDelegationTokenResponse]):
    owner_principal_type: str | None = ""
    owner_principal_name: str | None = ""
    renewers: list[CreateDelegationTokenRequest.CreatableRenewers] = ...
    max_lifetime_ms: int = 0
    unknown_tags: Tags = ()

    class CreatableRenewers(Message):
        principal_type: str = ""
        principal_name: str = ""
        unknown_tags: Tags = ()

class CreatePartitionsResponse(Message):
    throttle_time_ms: int = 0
    results: list[CreatePartitionsResponse.CreatePartitionsTopicResult] = ...
    unknown_tags: Tags = ()

    class CreatePartitionsTopicResult(Message):
        name: str = ""
        error_code: int = 0
        error_message: str | None = None
        unknown_tags: Tags = ()

class CreatePartitionsRequest(RequestMessage[CreatePartitionsResponse]):
    topics: list[CreatePartitionsRequest.CreatePartitionsTopic] = ...
    timeout_ms: int = 0
    validate_only: bool = False
    unknown_tags: Tags = ()

    class CreatePartitionsAssignment(Message):
        broker_ids: list[int] = ...
        unknown_tags: Tags = ()

    class CreatePartitionsTopic(Message):
        name: str = ""
        count: int = 0
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = ...
        unknown_tags: Tags = ()

class CreateTopicsResponse(Message):
    throttle_time_ms: int = 0
    topics: list[CreateTopicsResponse.CreatableTopicResult] = ...
    unknown_tags: Tags = ()

    class CreatableTopicConfigs(Message):
        name: str = ""
        value: str | None = ""
        read_only: bool = False
        config_source: int = -1
        is_sensitive: bool = False
        unknown_tags: Tags = ()

    class CreatableTopicResult(Message):
        name: str = ""
        topic_id: bytes = ...
        error_code: int = 0
        error_message: str | None = ""
        topic_config_error_code: int = 0
        num_partitions: int = -1
        replication_factor: int = -1
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = ...
        unknown_tags: Tags = ()

class CreateTopicsRequest(RequestMessage[CreateTopicsResponse]):
    topics: list[CreateTopicsRequest.CreatableTopic] = ...
    timeout_ms: int = 60000
    validate_only: bool = False
    unknown_tags: Tags = ()

    class CreatableReplicaAssignment(Message):
        partition_index: int = 0
        broker_ids: list[int] = ...
        unknown_tags: Tags = ()

    class CreatableTopicConfig(Message):
        name: str = ""
        value: str | None = ""
        unknown_tags: Tags = ()

    class CreatableTopic(Message):
        name: str = ""
        num_partitions: int = 0
        replication_factor: int = 0
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = ...
        configs: list[CreateTopicsRequest.CreatableTopicConfig] = ...
        unknown_tags: Tags = ()

class DefaultPrincipalData(Message):
    type: str = ""
    name: str = ""
    token_authenticated: bool = False
    unknown_tags: Tags = ()

class DeleteAclsResponse(Message):
    throttle_time_ms: int = 0
    filter_results: list[DeleteAclsResponse.DeleteAclsFilterResult] = ...
    unknown_tags: Tags = ()

    class DeleteAclsMatchingAcl(Message):
        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""
        pattern_type: int = 3
        principal: str = ""
        host: str = ""
        operation: int = 0
        permission_type: int = 0
        unknown_tags: Tags = ()

    class DeleteAclsFilterResult(Message):
        error_code: int = 0
        error_message: str | None = ""
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = ...
        unknown_tags: Tags = ()

class DeleteAclsRequest(RequestMessage[DeleteAclsResponse]):
    filters: list[DeleteAclsRequest.DeleteAclsFilter] = ...
    unknown_tags: Tags = ()

    class DeleteAclsFilter(Message):
        resource_type_filter: int = 0
        resource_name_filter: str | None = ""
        pattern_type_filter: int = 3
        principal_filter: str | None = ""
        host_filter: str | None = ""
        operation: int = 0
        permission_type: int = 0
        unknown_tags: Tags = ()

class DeleteGroupsResponse(Message):
    throttle_time_ms: int = 0
    results: list[DeleteGroupsResponse.DeletableGroupResult] = ...
    unknown_tags: Tags = ()

    class DeletableGroupResult(Message):
        group_id: str = ""
        error_code: int = 0
        error_message: str | None = None
        unknown_tags: Tags = ()

class DeleteGroupsRequest(RequestMessage[DeleteGroupsResponse]):
    groups_names: list[str] = ...
    unknown_tags: Tags = ()

class DeleteRecordsResponse(Message):
    throttle_time_ms: int = 0
    topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult] = ...
    unknown_tags: Tags = ()

    class DeleteRecordsPartitionResult(Message):
        partition_index: int = 0
        low_watermark: int = 0
        error_code: int = 0
        unknown_tags: Tags = ()

    class DeleteRecordsTopicResult(Message):
        name: str = ""
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = ...
        unknown_tags: Tags = ()

class DeleteRecordsRequest(RequestMessage[DeleteRecordsResponse]):
    topics: list[DeleteRecordsRequest.DeleteRecordsTopic] = ...
    timeout_ms: int = 0
    unknown_tags: Tags = ()

    class DeleteRecordsPartition(Message):
        partition_index: int = 0
        offset: int = 0
        unknown_tags: Tags = ()

    class DeleteRecordsTopic(Message):
        name: str = ""
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = ...
        unknown_tags: Tags = ()

class DeleteShareGroupOffsetsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic] = ...
    unknown_tags: Tags = ()

    class DeleteShareGroupOffsetsResponseTopic(Message):
        topic_name: str = ""
        topic_id: bytes = ...
        error_code: int = 0
        error_message: str | None = None
        unknown_tags: Tags = ()

class DeleteShareGroupOffsetsRequest(RequestMessage[DeleteShareGroupOffsetsResponse]):
    group_id: str = ""
    topics: list[DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic] = ...
    unknown_tags: Tags = ()

    class DeleteShareGroupOffsetsRequestTopic(Message):
        topic_name: str = ""
        unknown_tags: Tags = ()

class DeleteShareGroupStateResponse(Message):
    results: list[DeleteShareGroupStateResponse.DeleteStateResult] = ...
    unknown_tags: Tags = ()

    class PartitionResult(Message):
        partition: int = 0
        error_code: int = 0
        error_message: str | None = None
        unknown_tags: Tags = ()

    class DeleteStateResult(Message):
        topic_id: bytes = ...
        partitions: list[DeleteShareGroupStateResponse.PartitionResult] = ...
        unknown_tags: Tags = ()

class DeleteShareGroupStateRequest(RequestMessage[DeleteShareGroupStateResponse]):
    group_id: str = ""
    topics: list[DeleteShareGroupStateRequest.DeleteStateData] = ...
    unknown_tags: Tags = ()

    class PartitionData(Message):
        partition: int = 0
        unknown_tags: Tags = ()

    class DeleteStateData(Message):
        topic_id: bytes = ...
        partitions: list[DeleteShareGroupStateRequest.PartitionData] = ...
        unknown_tags: Tags = ()

class DeleteTopicsResponse(Message):
    throttle_time_ms: int = 0
    responses: list[DeleteTopicsResponse.DeletableTopicResult] = ...
    unknown_tags: Tags = ()

    class DeletableTopicResult(Message):
        name: str | None = ""
        topic_id: bytes = ...
        error_code: int = 0
        error_message: str | None = None
        unknown_tags: Tags = ()

class DeleteTopicsRequest(RequestMessage[DeleteTopicsResponse]):
    topics: list[DeleteTopicsRequest.DeleteTopicState] = ...
    topic_names: list[str] = ...
    timeout_ms: int = 0
    unknown_tags: Tags = ()

    class DeleteTopicState(Message):
        name: str | None = None
        topic_id: bytes = ...
        unknown_tags: Tags = ()

class DescribeAclsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResponse.DescribeAclsResource] = ...
    unknown_tags: Tags = ()

    class AclDescription(Message):
        principal: str = ""
        host: str = ""
        operation: int = 0
        permission_type: int = 0
        unknown_tags: Tags = ()

    class DescribeAclsResource(Message):
        resource_type: int = 0
        resource_name: str = ""
        pattern_type: int = 3
        acls: list[DescribeAclsResponse.AclDescription] = ...
        unknown_tags: Tags = ()

class DescribeAclsRequest(RequestMessage[DescribeAclsResponse]):
    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0
    unknown_tags: Tags = ()

class DescribeClientQuotasResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    entries: list[DescribeClientQuotasResponse.EntryData] | None = ...
    unknown_tags: Tags = ()

    class EntityData(Message):
        entity_type: str = ""
        entity_name: str | None = ""
        unknown_tags: Tags = ()

    class ValueData(Message):
        key: str = ""
        value: float = 0.0
        unknown_tags: Tags = ()

    class EntryData(Message):
        entity: list[DescribeClientQuotasResponse.EntityData] = ...
        values: list[DescribeClientQuotasResponse.ValueData] = ...
        unknown_tags: Tags = ()

class DescribeClientQuotasRequest(RequestMessage[DescribeClientQuotasResponse]):
    components: list[DescribeClientQuotasRequest.ComponentData] = ...
    strict: bool = False
    unknown_tags: Tags = ()

    class ComponentData(Message):
        entity_type: str = ""
        match_type: int = 0
        match: str | None = ""
        unknown_tags: Tags = ()

class DescribeClusterResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1
    cluster_id: str = ""
    controller_id: int = -1
    brokers: list[DescribeClusterResponse.DescribeClusterBroker] = ...
    cluster_authorized_operations: int = -2147483648
    unknown_tags: Tags = ()

    class DescribeClusterBroker(Message):
        broker_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None
        is_fenced: bool = False
        unknown_tags: Tags = ()

class DescribeClusterRequest(RequestMessage[DescribeClusterResponse]):
    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = False
    unknown_tags: Tags = ()

class DescribeConfigsResponse(Message):
    throttle_time_ms: int = 0
    results: list[DescribeConfigsResponse.DescribeConfigsResult] = ...
    unknown_tags: Tags = ()

    class DescribeConfigsSynonym(Message):
        name: str = ""
        value: str | None = ""
        source: int = 0
        unknown_tags: Tags = ()

    class DescribeConfigsResourceResult(Message):
        name: str = ""
        value: str | None = ""
        read_only: bool = False
        config_source: int = -1
        is_sensitive: bool = False
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = ...
        config_type: int = 0
        documentation: str | None = ""
        unknown_tags: Tags = ()

    class DescribeConfigsResult(Message):
        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = ...
        unknown_tags: Tags = ()

class DescribeConfigsRequest(RequestMessage[DescribeConfigsResponse]):
    resources: list[DescribeConfigsRequest.DescribeConfigsResource] = ...
    include_synonyms: bool = False
    include_documentation: bool = False
    unknown_tags: Tags = ()

    class DescribeConfigsResource(Message):
        resource_type: int = 0
        resource_name: str = ""
        configuration_keys: list[str] | None = ...
        unknown_tags: Tags = ()

class DescribeDelegationTokenResponse(Message):
    error_code: int = 0
    tokens: list[DescribeDelegationTokenResponse.DescribedDelegationToken] = ...
    throttle_time_ms: int = 0
    unknown_tags: Tags = ()

    class DescribedDelegationTokenRenewer(Message):
        principal_type: str = ""
        principal_name: str = ""
        unknown_tags: Tags = ()

    class DescribedDelegationToken(Message):
        principal_type: str = ""
        principal_name: str = ""
        token_requester_principal_type: str = ""
        token_requester_principal_name: str = ""
        issue_timestamp: int = 0
        expiry_timestamp: int = 0
        max_timestamp: int = 0
        token_id: str = ""
        hmac: Buffer = ...
        renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer] = ...
        unknown_tags: Tags = ()

class DescribeDelegationTokenRequest(RequestMessage[DescribeDelegationTokenResponse]):
    owners: list[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None = ...
    unknown_tags: Tags = ()

    class DescribeDelegationTokenOwner(Message):
        principal_type: str = ""
        principal_name: str = ""
        unknown_tags: Tags = ()

class DescribeGroupsResponse(Message):
    throttle_time_ms: int = 0
    groups: list[DescribeGroupsResponse.DescribedGroup] = ...
    unknown_tags: Tags = ()

    class DescribedGroupMember(Message):
        member_id: str = ""
        group_instance_id: str | None = None
        client_id: str = ""
        client_host: str = ""
        member_metadata: Buffer = ...
        member_assignment: Buffer = ...
        unknown_tags: Tags = ()

    class DescribedGroup(Message):
        error_code: int = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        protocol_type: str = ""
        protocol_data: str = ""
        members: list[DescribeGroupsResponse.DescribedGroupMember] = ...
        authorized_operations: int = -2147483648
        unknown_tags: Tags = ()

class DescribeGroupsRequest(RequestMessage[DescribeGroupsResponse]):
    groups: list[str] = ...
    include_authorized_operations: bool = False
    unknown_tags: Tags = ()

class DescribeLogDirsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    results: list[DescribeLogDirsResponse.DescribeLogDirsResult] = ...
    unknown_tags: Tags = ()

    class DescribeLogDirsPartition(Message):
        partition_index: int = 0
        partition_size: int = 0
        offset_lag: int = 0
        is_future_key: bool = False
        unknown_tags: Tags = ()

    class DescribeLogDirsTopic(Message):
        name: str = ""
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = ...
        unknown_tags: Tags = ()

    class DescribeLogDirsResult(Message):
        error_code: int = 0
        log_dir: str = ""
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = ...
        total_bytes: int = -1
        usable_bytes: int = -1
        is_cordoned: bool = False
        unknown_tags: Tags = ()

class DescribeLogDirsRequest(RequestMessage[DescribeLogDirsResponse]):
    topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None = ...
    unknown_tags: Tags = ()

    class DescribableLogDirTopic(Message):
        topic: str = ""
        partitions: list[int] = ...
        unknown_tags: Tags = ()

class DescribeProducersResponse(Message):
    throttle_time_ms: int = 0
    topics: list[DescribeProducersResponse.TopicResponse] = ...
    unknown_tags: Tags = ()

    class ProducerState(Message):
        producer_id: int = 0
        producer_epoch: int = 0
        last_sequence: int = -1
        last_timestamp: int = -1
        coordinator_epoch: int = 0
        current_txn_start_offset: int = -1
        unknown_tags: Tags = ()

    class PartitionResponse(Message):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = None
        active_producers: list[DescribeProducersResponse.ProducerState] = ...
        unknown_tags: Tags = ()

    class TopicResponse(Message):
        name: str = ""
        partitions: list[DescribeProducersResponse.PartitionResponse] = ...
        unknown_tags: Tags = ()

class DescribeProducersRequest(RequestMessage[DescribeProducersResponse]):
    topics: list[DescribeProducersRequest.TopicRequest] = ...
    unknown_tags: Tags = ()

    class TopicRequest(Message):
        name: str = ""
        partition_indexes: list[int] = ...
        unknown_tags: Tags = ()

class DescribeQuorumResponse(Message):
    error_code: int = 0
    error_message: str | None = ""
    topics: list[DescribeQuorumResponse.TopicData] = ...
    nodes: list[DescribeQuorumResponse.Node] = ...
    unknown_tags: Tags = ()

    class ReplicaState(Message):
        replica_id: int = 0
        replica_directory_id: bytes = ...
        log_end_offset: int = 0
        last_fetch_timestamp: int = -1
        last_caught_up_timestamp: int = -1
        unknown_tags: Tags = ()

    class PartitionData(Message):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = ""
        leader_id: int = 0
        leader_epoch: int = 0
        high_watermark: int = 0
        current_voters: list[DescribeQuorumResponse.ReplicaState] = ...
        observers: list[DescribeQuorumResponse.ReplicaState] = ...
        unknown_tags: Tags = ()

    class TopicData(Message):
        topic_name: str = ""
        partitions: list[DescribeQuorumResponse.PartitionData] = ...
        unknown_tags: Tags = ()

    class Listener(Message):
        name: str = ""
        host: str = ""
        port: int = 0
        unknown_tags: Tags = ()

    class Node(Message):
        node_id: int = 0
        listeners: list[DescribeQuorumResponse.Listener] = ...
        unknown_tags: Tags = ()

class DescribeQuorumRequest(RequestMessage[DescribeQuorumResponse]):
    topics: list[DescribeQuorumRequest.TopicData] = ...
    unknown_tags: Tags = ()

    class PartitionData(Message):
        partition_index: int = 0
        unknown_tags: Tags = ()

    class TopicData(Message):
        topic_name: str = ""
        partitions: list[DescribeQuorumRequest.PartitionData] = ...
        unknown_tags: Tags = ()

class DescribeShareGroupOffsetsResponse(Message):
    throttle_time_ms: int = 0
    groups: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup] = ...
    unknown_tags: Tags = ()

    class DescribeShareGroupOffsetsResponsePartition(Message):
        partition_index: int = 0
        start_offset: int = 0
        leader_epoch: int = 0
        lag: int = -1
        error_code: int = 0
        error_message: str | None = None
        unknown_tags: Tags = ()

    class DescribeShareGroupOffsetsResponseTopic(Message):
        topic_name: str = ""
        topic_id: bytes = ...
        partitions: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition] = ...
        unknown_tags: Tags = ()

    class DescribeShareGroupOffsetsResponseGroup(Message):
        group_id: str = ""
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = ...
        error_code: int = 0
        error_message: str | None = None
        unknown_tags: Tags = ()

class DescribeShareGroupOffsetsRequest(RequestMessage[DescribeShareGroupOffsetsResponse]):
    groups: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup] = ...
    unknown_tags: Tags = ()

    class DescribeShareGroupOffsetsRequestTopic(Message):
        topic_name: str = ""
        partitions: list[int] = ...
        unknown_tags: Tags = ()

    class DescribeShareGroupOffsetsRequestGroup(Message):
        group_id: str = ""
        topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None = ...
        unknown_tags: Tags = ()

class DescribeTopicPartitionsResponse(Message):
    throttle_time_ms: int = 0
    topics: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic] = ...
    next_cursor: DescribeTopicPartitionsResponse.Cursor | None = None
    unknown_tags: Tags = ()

    class DescribeTopicPartitionsResponsePartition(Message):
        error_code: int = 0
        partition_index: int = 0
        leader_id: int = 0
        leader_epoch: int = -1
        replica_nodes: list[int] = ...
        isr_nodes: list[int] = ...
        eligible_leader_replicas: list[int] | None = None
        last_known_elr: list[int] | None = None
        offline_replicas: list[int] = ...
        unknown_tags: Tags = ()

    class DescribeTopicPartitionsResponseTopic(Message):
        error_code: int = 0
        name: str | None = ""
        topic_id: bytes = ...
        is_internal: bool = False
        partitions: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition] = ...
        topic_authorized_operations: int = -2147483648
        unknown_tags: Tags = ()

    class Cursor(Message):
        topic_name: str = ""
        partition_index: int = 0
        unknown_tags: Tags = ()

class DescribeTopicPartitionsRequest(RequestMessage[DescribeTopicPartitionsResponse]):
    topics: list[DescribeTopicPartitionsRequest.TopicRequest] = ...
    response_partition_limit: int = 2000
    cursor: DescribeTopicPartitionsRequest.Cursor | None = None
    unknown_tags: Tags = ()

    class TopicRequest(Message):
        name: str = ""
        unknown_tags: Tags = ()

    class Cursor(Message):
        topic_name: str = ""
        partition_index: int = 0
        unknown_tags: Tags = ()

class DescribeTransactionsResponse(Message):
    throttle_time_ms: int = 0
    transaction_states: list[DescribeTransactionsResponse.TransactionState] = ...
    unknown_tags: Tags = ()

    class TopicData(Message):
        topic: str = ""
        partitions: list[int] = ...
        unknown_tags: Tags = ()

    class TransactionState(Message):
        error_code: int = 0
        transactional_id: str = ""
        transaction_state: str = ""
        transaction_timeout_ms: int = 0
        transaction_start_time_ms: int = 0
        producer_id: int = 0
        producer_epoch: int = 0
        topics: list[DescribeTransactionsResponse.TopicData] = ...
        unknown_tags: Tags = ()

class DescribeTransactionsRequest(RequestMessage[DescribeTransactionsResponse]):
    transactional_ids: list[str] = ...
    unknown_tags: Tags = ()

class DescribeUserScramCredentialsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult] = ...
    unknown_tags: Tags = ()

    class CredentialInfo(Message):
        mechanism: int = 0
        iterations: int = 0
        unknown_tags: Tags = ()

    class DescribeUserScramCredentialsResult(Message):
        user: str = ""
        error_code: int = 0
        error_message: str | None = ""
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo] = ...
        unknown_tags: Tags = ()

class DescribeUserScramCredentialsRequest(RequestMessage[DescribeUserScramCredentialsResponse]):
    users: list[DescribeUserScramCredentialsRequest.UserName] | None = ...
    unknown_tags: Tags = ()

    class UserName(Message):
        name: str = ""
        unknown_tags: Tags = ()

class ElectLeadersResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    replica_election_results: list[ElectLeadersResponse.ReplicaElectionResult] = ...
    unknown_tags: Tags = ()

    class PartitionResult(Message):
        partition_id: int = 0
        error_code: int = 0
        error_message: str | None = ""
        unknown_tags: Tags = ()

    class ReplicaElectionResult(Message):
        topic: str = ""
        partition_result: list[ElectLeadersResponse.PartitionResult] = ...
        unknown_tags: Tags = ()

class ElectLeadersRequest(RequestMessage[ElectLeadersResponse]):
    election_type: int = 0
    topic_partitions: list[ElectLeadersRequest.TopicPartitions] | None = ...
    timeout_ms: int = 60000
    unknown_tags: Tags = ()

    class TopicPartitions(Message):
        topic: str = ""
        partitions: list[int] = ...
        unknown_tags: Tags = ()

class EndQuorumEpochResponse(Message):
    error_code: int = 0
    topics: list[EndQuorumEpochResponse.TopicData] = ...
    node_endpoints: list[EndQuorumEpochResponse.NodeEndpoint] = ...
    unknown_tags: Tags = ()

    class PartitionData(Message):
        partition_index: int = 0
        error_code: int = 0
        leader_id: int = 0
        leader_epoch: int = 0
        unknown_tags: Tags = ()

    class TopicData(Message):
        topic_name: str = ""
        partitions: list[EndQuorumEpochResponse.PartitionData] = ...
        unknown_tags: Tags = ()

    class NodeEndpoint(Message):
        node_id: int = 0
        host: str = ""
        port: int = 0
        unknown_tags: Tags = ()

class EndQuorumEpochRequest(RequestMessage[EndQuorumEpochResponse]):
    cluster_id: str | None = None
    topics: list[EndQuorumEpochRequest.TopicData] = ...
    leader_endpoints: list[EndQuorumEpochRequest.LeaderEndpoint] = ...
    unknown_tags: Tags = ()

    class ReplicaInfo(Message):
        candidate_id: int = 0
        candidate_directory_id: bytes = ...
        unknown_tags: Tags = ()

    class PartitionData(Message):
        partition_index: int = 0
        leader_id: int = 0
        leader_epoch: int = 0
        preferred_successors: list[int] = ...
        preferred_candidates: list[EndQuorumEpochRequest.ReplicaInfo] = ...
        unknown_tags: Tags = ()

    class TopicData(Message):
        topic_name: str = ""
        partitions: list[EndQuorumEpochRequest.PartitionData] = ...
        unknown_tags: Tags = ()

    class LeaderEndpoint(Message):
        name: str = ""
        host: str = ""
        port: int = 0
        unknown_tags: Tags = ()

class EndTxnResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    unknown_tags: Tags = ()

class EndTxnRequest(RequestMessage[EndTxnResponse]):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False
    unknown_tags: Tags = ()

class EndTxnMarker(Message):
    coordinator_epoch: int = 0
    unknown_tags: Tags = ()

class EnvelopeResponse(Message):
    response_data: Buffer | None = None
    error_code: int = 0
    unknown_tags: Tags = ()

class EnvelopeRequest(RequestMessage[EnvelopeResponse]):
    request_data: Buffer = ...
    request_principal: Buffer | None = ...
    client_host_address: Buffer = ...
    unknown_tags: Tags = ()

class ExpireDelegationTokenResponse(Message):
    error_code: int = 0
    expiry_timestamp_ms: int = 0
    throttle_time_ms: int = 0
    unknown_tags: Tags = ()

class ExpireDelegationTokenRequest(RequestMessage[ExpireDelegationTokenResponse]):
    hmac: Buffer = ...
    expiry_time_period_ms: int = 0
    unknown_tags: Tags = ()

class FetchResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: list[FetchResponse.FetchableTopicResponse] = ...
    node_endpoints: list[FetchResponse.NodeEndpoint] = ...
    unknown_tags: Tags = ()

    class EpochEndOffset(Message):
        epoch: int = -1
        end_offset: int = -1
        unknown_tags: Tags = ()

    class LeaderIdAndEpoch(Message):
        leader_id: int = -1
        leader_epoch: int = -1
        unknown_tags: Tags = ()

    class SnapshotId(Message):
        end_offset: int = -1
        epoch: int = -1
        unknown_tags: Tags = ()

    class AbortedTransaction(Message):
        producer_id: int = 0
        first_offset: int = 0
        unknown_tags: Tags = ()

    class PartitionData(Message):
        partition_index: int = 0
        error_code: int = 0
        high_watermark: int = 0
        last_stable_offset: int = -1
        log_start_offset: int = -1
        diverging_epoch: FetchResponse.EpochEndOffset = ...
        current_leader: FetchResponse.LeaderIdAndEpoch = ...
        snapshot_id: FetchResponse.SnapshotId = ...
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = ...
        preferred_read_replica: int = -1
        records: _Records = ...
        unknown_tags: Tags = ()

    class FetchableTopicResponse(Message):
        topic: str = ""
        topic_id: bytes = ...
        partitions: list[FetchResponse.PartitionData] = ...
        unknown_tags: Tags = ()

    class NodeEndpoint(Message):
        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None
        unknown_tags: Tags = ()

class FetchRequest(RequestMessage[FetchResponse]):
    cluster_id: str | None = None
    replica_id: int = -1
    replica_state: FetchRequest.ReplicaState = ...
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchRequest.FetchTopic] = ...
    forgotten_topics_data: list[FetchRequest.ForgottenTopic] = ...
    rack_id: str = ""
    unknown_tags: Tags = ()

    class ReplicaState(Message):
        replica_id: int = -1
        replica_epoch: int = -1
        unknown_tags: Tags = ()

    class FetchPartition(Message):
        partition: int = 0
        current_leader_epoch: int = -1
        fetch_offset: int = 0
        last_fetched_epoch: int = -1
        log_start_offset: int = -1
        partition_max_bytes: int = 0
        replica_directory_id: bytes = ...
        high_watermark: int = 9223372036854775807
        unknown_tags: Tags = ()

    class FetchTopic(Message):
        topic: str = ""
        topic_id: bytes = ...
        partitions: list[FetchRequest.FetchPartition] = ...
        unknown_tags: Tags = ()

    class ForgottenTopic(Message):
        topic: str = ""
        topic_id: bytes = ...
        partitions: list[int] = ...
        unknown_tags: Tags = ()

class FetchSnapshotResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    topics: list[FetchSnapshotResponse.TopicSnapshot] = ...
    node_endpoints: list[FetchSnapshotResponse.NodeEndpoint] = ...
    unknown_tags: Tags = ()

    class SnapshotId(Message):
        end_offset: int = 0
        epoch: int = 0
        unknown_tags: Tags = ()

    class LeaderIdAndEpoch(Message):
        leader_id: int = 0
        leader_epoch: int = 0
        unknown_tags: Tags = ()

    class PartitionSnapshot(Message):
        index: int = 0
        error_code: int = 0
        snapshot_id: FetchSnapshotResponse.SnapshotId = ...
        current_leader: FetchSnapshotResponse.LeaderIdAndEpoch = ...
        size: int = 0
        position: int = 0
        unaligned_records: _Records = ...
        unknown_tags: Tags = ()

    class TopicSnapshot(Message):
        name: str = ""
        partitions: list[FetchSnapshotResponse.PartitionSnapshot] = ...
        unknown_tags: Tags = ()

    class NodeEndpoint(Message):
        node_id: int = 0
        host: str = ""
        port: int = 0
        unknown_tags: Tags = ()

class FetchSnapshotRequest(RequestMessage[FetchSnapshotResponse]):
    cluster_id: str | None = None
    replica_id: int = -1
    max_bytes: int = 2147483647
    topics: list[FetchSnapshotRequest.TopicSnapshot] = ...
    unknown_tags: Tags = ()

    class SnapshotId(Message):
        end_offset: int = 0
        epoch: int = 0
        unknown_tags: Tags = ()

    class PartitionSnapshot(Message):
        partition: int = 0
        current_leader_epoch: int = 0
        snapshot_id: FetchSnapshotRequest.SnapshotId = ...
        position: int = 0
        replica_directory_id: bytes = ...
        unknown_tags: Tags = ()

    class TopicSnapshot(Message):
        name: str = ""
        partitions: list[FetchSnapshotRequest.PartitionSnapshot] = ...
        unknown_tags: Tags = ()

class FindCoordinatorResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    coordinators: list[FindCoordinatorResponse.Coordinator] = ...
    unknown_tags: Tags = ()

    class Coordinator(Message):
        key: str = ""
        node_id: int = 0
        host: str = ""
        port: int = 0
        error_code: int = 0
        error_message: str | None = ""
        unknown_tags: Tags = ()

class FindCoordinatorRequest(RequestMessage[FindCoordinatorResponse]):
    key: str = ""
    key_type: int = 0
    coordinator_keys: list[str] = ...
    unknown_tags: Tags = ()

class GetTelemetrySubscriptionsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    client_instance_id: bytes = ...
    subscription_id: int = 0
    accepted_compression_types: list[int] = ...
    push_interval_ms: int = 0
    telemetry_max_bytes: int = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = ...
    unknown_tags: Tags = ()

class GetTelemetrySubscriptionsRequest(RequestMessage[GetTelemetrySubscriptionsResponse]):
    client_instance_id: bytes = ...
    unknown_tags: Tags = ()

class HeartbeatResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_tags: Tags = ()

class HeartbeatRequest(RequestMessage[HeartbeatResponse]):
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    unknown_tags: Tags = ()

class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: int = 0
    responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse] = ...
    unknown_tags: Tags = ()

    class AlterConfigsResourceResponse(Message):
        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""
        unknown_tags: Tags = ()

class IncrementalAlterConfigsRequest(RequestMessage[IncrementalAlterConfigsResponse]):
    resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource] = ...
    validate_only: bool = False
    unknown_tags: Tags = ()

    class AlterableConfig(Message):
        name: str = ""
        config_operation: int = 0
        value: str | None = ""
        unknown_tags: Tags = ()

    class AlterConfigsResource(Message):
        resource_type: int = 0
        resource_name: str = ""
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = ...
        unknown_tags: Tags = ()

class InitProducerIdResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0
    ongoing_txn_producer_id: int = -1
    ongoing_txn_producer_epoch: int = -1
    unknown_tags: Tags = ()

class InitProducerIdRequest(RequestMessage[InitProducerIdResponse]):
    transactional_id: str | None = ""
    transaction_timeout_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    enable2_pc: bool = False
    keep_prepared_txn: bool = False
    unknown_tags: Tags = ()

class InitializeShareGroupStateResponse(Message):
    results: list[InitializeShareGroupStateResponse.InitializeStateResult] = ...
    unknown_tags: Tags = ()

    class PartitionResult(Message):
        partition: int = 0
        error_code: int = 0
        error_message: str | None = None
        unknown_tags: Tags = ()

    class InitializeStateResult(Message):
        topic_id: bytes = ...
        partitions: list[InitializeShareGroupStateResponse.PartitionResult] = ...
        unknown_tags: Tags = ()

class InitializeShareGroupStateRequest(RequestMessage[InitializeShareGroupStateResponse]):
    group_id: str = ""
    topics: list[InitializeShareGroupStateRequest.InitializeStateData] = ...
    unknown_tags: Tags = ()

    class PartitionData(Message):
        partition: int = 0
        state_epoch: int = 0
        start_offset: int = 0
        unknown_tags: Tags = ()

    class InitializeStateData(Message):
        topic_id: bytes = ...
        partitions: list[InitializeShareGroupStateRequest.PartitionData] = ...
        unknown_tags: Tags = ()

class JoinGroupResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = ""
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: list[JoinGroupResponse.JoinGroupResponseMember] = ...
    unknown_tags: Tags = ()

    class JoinGroupResponseMember(Message):
        member_id: str = ""
        group_instance_id: str | None = None
        metadata: Buffer = ...
        unknown_tags: Tags = ()

class JoinGroupRequest(RequestMessage[JoinGroupResponse]):
    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = ""
    protocols: list[JoinGroupRequest.JoinGroupRequestProtocol] = ...
    reason: str | None = None
    unknown_tags: Tags = ()

    class JoinGroupRequestProtocol(Message):
        name: str = ""
        metadata: Buffer = ...
        unknown_tags: Tags = ()

class KRaftVersionRecord(Message):
    version: int = 0
    k_raft_version: int = 0
    unknown_tags: Tags = ()

class KeyFilter(Message):
    filter_version: int = 1
    hash: int = 1
    ranges: list[KeyFilter.HashRange] = ...
    keys: list[Buffer] = ...
    null_keys: int = 0
    unknown_tags: Tags = ()

    class HashRange(Message):
        first: int = 0
        last: int = 0
        unknown_tags: Tags = ()

class KeyFilterApplied(Message):
    scanned_to: int = 0
    unknown_tags: Tags = ()

class LeaderAndIsrResponse(Message):
    unknown_tags: Tags = ()

class LeaderAndIsrRequest(RequestMessage[LeaderAndIsrResponse]):
    unknown_tags: Tags = ()

class LeaderChangeMessage(Message):
    version: int = 0
    leader_id: int = 0
    voters: list[LeaderChangeMessage.Voter] = ...
    granting_voters: list[LeaderChangeMessage.Voter] = ...
    unknown_tags: Tags = ()

    class Voter(Message):
        voter_id: int = 0
        voter_directory_id: bytes = ...
        unknown_tags: Tags = ()

class LeaveGroupResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    members: list[LeaveGroupResponse.MemberResponse] = ...
    unknown_tags: Tags = ()

    class MemberResponse(Message):
        member_id: str = ""
        group_instance_id: str | None = ""
        error_code: int = 0
        unknown_tags: Tags = ()

class LeaveGroupRequest(RequestMessage[LeaveGroupResponse]):
    group_id: str = ""
    member_id: str = ""
    members: list[LeaveGroupRequest.MemberIdentity] = ...
    unknown_tags: Tags = ()

    class MemberIdentity(Message):
        member_id: str = ""
        group_instance_id: str | None = None
        reason: str | None = None
        unknown_tags: Tags = ()

class ListConfigResourcesResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    config_resources: list[ListConfigResourcesResponse.ConfigResource] = ...
    unknown_tags: Tags = ()

    class ConfigResource(Message):
        resource_name: str = ""
        resource_type: int = 16
        unknown_tags: Tags = ()

class ListConfigResourcesRequest(RequestMessage[ListConfigResourcesResponse]):
    resource_types: list[int] = ...
    unknown_tags: Tags = ()

class ListGroupsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    groups: list[ListGroupsResponse.ListedGroup] = ...
    unknown_tags: Tags = ()

    class ListedGroup(Message):
        group_id: str = ""
        protocol_type: str = ""
        group_state: str = ""
        group_type: str = ""
        unknown_tags: Tags = ()

class ListGroupsRequest(RequestMessage[ListGroupsResponse]):
    states_filter: list[str] = ...
    types_filter: list[str] = ...
    unknown_tags: Tags = ()

class ListOffsetsResponse(Message):
    throttle_time_ms: int = 0
    topics: list[ListOffsetsResponse.ListOffsetsTopicResponse] = ...
    unknown_tags: Tags = ()

    class ListOffsetsPartitionResponse(Message):
        partition_index: int = 0
        error_code: int = 0
        timestamp: int = -1
        offset: int = -1
        leader_epoch: int = -1
        unknown_tags: Tags = ()

    class ListOffsetsTopicResponse(Message):
        name: str = ""
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = ...
        unknown_tags: Tags = ()

class ListOffsetsRequest(RequestMessage[ListOffsetsResponse]):
    replica_id: int = 0
    isolation_level: int = 0
    topics: list[ListOffsetsRequest.ListOffsetsTopic] = ...
    timeout_ms: int = 0
    unknown_tags: Tags = ()

    class ListOffsetsPartition(Message):
        partition_index: int = 0
        current_leader_epoch: int = -1
        timestamp: int = 0
        unknown_tags: Tags = ()

    class ListOffsetsTopic(Message):
        name: str = ""
        partitions: list[ListOffsetsRequest.ListOffsetsPartition] = ...
        unknown_tags: Tags = ()

class ListPartitionReassignmentsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: list[ListPartitionReassignmentsResponse.OngoingTopicReassignment] = ...
    unknown_tags: Tags = ()

    class OngoingPartitionReassignment(Message):
        partition_index: int = 0
        replicas: list[int] = ...
        adding_replicas: list[int] = ...
        removing_replicas: list[int] = ...
        unknown_tags: Tags = ()

    class OngoingTopicReassignment(Message):
        name: str = ""
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = ...
        unknown_tags: Tags = ()

class ListPartitionReassignmentsRequest(RequestMessage[ListPartitionReassignmentsResponse]):
    timeout_ms: int = 60000
    topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None = None
    unknown_tags: Tags = ()

    class ListPartitionReassignmentsTopics(Message):
        name: str = ""
        partition_indexes: list[int] = ...
        unknown_tags: Tags = ()

class ListTransactionsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_state_filters: list[str] = ...
    transaction_states: list[ListTransactionsResponse.TransactionState] = ...
    unknown_tags: Tags = ()

    class TransactionState(Message):
        transactional_id: str = ""
        producer_id: int = 0
        transaction_state: str = ""
        unknown_tags: Tags = ()

class ListTransactionsRequest(RequestMessage[ListTransactionsResponse]):
    state_filters: list[str] = ...
    producer_id_filters: list[int] = ...
    duration_filter: int = -1
    transactional_id_pattern: str | None = None
    unknown_tags: Tags = ()

class MetadataResponse(Message):
    throttle_time_ms: int = 0
    brokers: list[MetadataResponse.MetadataResponseBroker] = ...
    cluster_id: str | None = None
    controller_id: int = -1
    topics: list[MetadataResponse.MetadataResponseTopic] = ...
    cluster_authorized_operations: int = -2147483648
    error_code: int = 0
    unknown_tags: Tags = ()

    class MetadataResponseBroker(Message):
        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None
        unknown_tags: Tags = ()

    class MetadataResponsePartition(Message):
        error_code: int = 0
        partition_index: int = 0
        leader_id: int = 0
        leader_epoch: int = -1
        replica_nodes: list[int] = ...
        isr_nodes: list[int] = ...
        offline_replicas: list[int] = ...
        unknown_tags: Tags = ()

    class MetadataResponseTopic(Message):
        error_code: int = 0
        name: str | None = ""
        topic_id: bytes = ...
        is_internal: bool = False
        partitions: list[MetadataResponse.MetadataResponsePartition] = ...
        topic_authorized_operations: int = -2147483648
        unknown_tags: Tags = ()

class MetadataRequest(RequestMessage[MetadataResponse]):
    topics: list[MetadataRequest.MetadataRequestTopic] | None = ...
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False
    unknown_tags: Tags = ()

    class MetadataRequestTopic(Message):
        topic_id: bytes = ...
        name: str | None = ""
        unknown_tags: Tags = ()

class MovedClient(Message):
    node_id: int = 0
    client_host: str = ""
    broker_host: str = ""
    broker_port: int = 0
    moves: int = 0
    opened_at: float = 0.0
    is_authenticated: bool = False
    user: str | None = ""
    session_ends: float = 0.0
    software: list[str] | None = ...
    unread: Buffer = ...
    unknown_tags: Tags = ()

class OffsetCommitResponse(Message):
    throttle_time_ms: int = 0
    topics: list[OffsetCommitResponse.OffsetCommitResponseTopic] = ...
    unknown_tags: Tags = ()

    class OffsetCommitResponsePartition(Message):
        partition_index: int = 0
        error_code: int = 0
        unknown_tags: Tags = ()

    class OffsetCommitResponseTopic(Message):
        name: str = ""
        topic_id: bytes = ...
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = ...
        unknown_tags: Tags = ()

class OffsetCommitRequest(RequestMessage[OffsetCommitResponse]):
    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    topics: list[OffsetCommitRequest.OffsetCommitRequestTopic] = ...
    unknown_tags: Tags = ()

    class OffsetCommitRequestPartition(Message):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        committed_metadata: str | None = ""
        unknown_tags: Tags = ()

    class OffsetCommitRequestTopic(Message):
        name: str = ""
        topic_id: bytes = ...
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = ...
        unknown_tags: Tags = ()

class OffsetDeleteResponse(Message):
    error_code: int = 0
    throttle_time_ms: int = 0
    topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic] = ...
    unknown_tags: Tags = ()

    class OffsetDeleteResponsePartition(Message):
        partition_index: int = 0
        error_code: int = 0
        unknown_tags: Tags = ()

    class OffsetDeleteResponseTopic(Message):
        name: str = ""
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = ...
        unknown_tags: Tags = ()

class OffsetDeleteRequest(RequestMessage[OffsetDeleteResponse]):
    group_id: str = ""
    topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic] = ...
    unknown_tags: Tags = ()

    class OffsetDeleteRequestPartition(Message):
        partition_index: int = 0
        unknown_tags: Tags = ()

    class OffsetDeleteRequestTopic(Message):
        name: str = ""
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = ...
        unknown_tags: Tags = ()

class OffsetFetchResponse(Message):
    throttle_time_ms: int = 0
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopic] = ...
    error_code: int = 0
    groups: list[OffsetFetchResponse.OffsetFetchResponseGroup] = ...
    unknown_tags: Tags = ()

    class OffsetFetchResponsePartition(Message):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        metadata: str | None = ""
        error_code: int = 0
        unknown_tags: Tags = ()

    class OffsetFetchResponseTopic(Message):
        name: str = ""
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = ...
        unknown_tags: Tags = ()

    class OffsetFetchResponsePartitions(Message):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        metadata: str | None = ""
        error_code: int = 0
        unknown_tags: Tags = ()

    class OffsetFetchResponseTopics(Message):
        name: str = ""
        topic_id: bytes = ...
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = ...
        unknown_tags: Tags = ()

    class OffsetFetchResponseGroup(Message):
        group_id: str = ""
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = ...
        error_code: int = 0
        unknown_tags: Tags = ()

class OffsetFetchRequest(RequestMessage[OffsetFetchResponse]):
    group_id: str = ""
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None = ...
    groups: list[OffsetFetchRequest.OffsetFetchRequestGroup] = ...
    require_stable: bool = False
    unknown_tags: Tags = ()

    class OffsetFetchRequestTopic(Message):
        name: str = ""
        partition_indexes: list[int] = ...
        unknown_tags: Tags = ()

    class OffsetFetchRequestTopics(Message):
        name: str = ""
        topic_id: bytes = ...
        partition_indexes: list[int] = ...
        unknown_tags: Tags = ()

    class OffsetFetchRequestGroup(Message):
        group_id: str = ""
        member_id: str | None = None
        member_epoch: int = -1
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = ...
        unknown_tags: Tags = ()

class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: int = 0
    topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult] = ...
    unknown_tags: Tags = ()

    class EpochEndOffset(Message):
        error_code: int = 0
        partition: int = 0
        leader_epoch: int = -1
        end_offset: int = -1
        unknown_tags: Tags = ()

    class OffsetForLeaderTopicResult(Message):
        topic: str = ""
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = ...
        unknown_tags: Tags = ()

class OffsetForLeaderEpochRequest(RequestMessage[OffsetForLeaderEpochResponse]):
    replica_id: int = -2
    topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = ...
    unknown_tags: Tags = ()

    class OffsetForLeaderPartition(Message):
        partition: int = 0
        current_leader_epoch: int = -1
        leader_epoch: int = 0
        unknown_tags: Tags = ()

    class OffsetForLeaderTopic(Message):
        topic: str = ""
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = ...
        unknown_tags: Tags = ()

class PeerRequest(Message):
    id: int = 0
    generation: int = 0
    connection_id: int = 0
    node_id: int = 0
    client_host: str = ""
    client_id: str | None = ""
    api_key: int = 0
    api_version: int = 0
    correlation_id: int = 0
    body: Buffer = ...
    feature: str = "share groups"
    unknown_tags: Tags = ()

class PeerResponse(Message):
    id: int = 0
    outcome: int = 0
    frame: Buffer | None = ...
    unknown_tags: Tags = ()

class PeerBatches(Message):
    chunk: int = 0
    rows: Buffer = ...
    key_offsets: Buffer | None = None
    key_hashes: Buffer | None = None
    unknown_tags: Tags = ()

class PeerCancel(Message):
    id: int = 0
    unknown_tags: Tags = ()

class PeerChallenge(Message):
    nonce: Buffer = ...
    address: str = ""
    kinds: int = 16
    unknown_tags: Tags = ()

class PeerClosed(Message):
    connection_id: int = 0
    unknown_tags: Tags = ()

class PeerCommand(Message):
    id: int = 0
    feature: str = ""
    words: list[str] = ...
    unknown_tags: Tags = ()

class PeerCommandResult(Message):
    id: int = 0
    status: int = 0
    body: str = ""
    unknown_tags: Tags = ()

class PeerForget(Message):
    chunks: list[int] = ...
    unknown_tags: Tags = ()

class PeerGroupKnown(Message):
    id: int = 0
    is_known: bool = False
    unknown_tags: Tags = ()

class PeerGroupKnownRequest(Message):
    id: int = 0
    feature: str = ""
    group_id: str = ""
    unknown_tags: Tags = ()

class PeerGroups(Message):
    added: list[str] = ...
    removed: list[str] = ...
    unknown_tags: Tags = ()

class PeerHello(Message):
    nonce: Buffer = ...
    address: str = ""
    proof: Buffer = ...
    kinds: int = 16
    unknown_tags: Tags = ()

class PeerHoldings(Message):
    id: int = 0
    groups: list[PeerHoldings.HeldGroup] = ...
    with_settings: list[str] = ...
    unknown_tags: Tags = ()

    class HeldGroup(Message):
        group_id: str = ""
        state: str = ""
        unknown_tags: Tags = ()

class PeerHoldingsRequest(Message):
    id: int = 0
    unknown_tags: Tags = ()

class PeerPing(Message):
    generation: int = 0
    rejoins: bool = False
    unknown_tags: Tags = ()

class PeerQuery(Message):
    id: int = 0
    connection_id: int = 0
    api_key: int = 0
    api_version: int = 0
    body: Buffer = ...
    unknown_tags: Tags = ()

class PeerQueryResponse(Message):
    id: int = 0
    reason: str | None = ""
    body: Buffer = ...
    unknown_tags: Tags = ()

class PeerRecords(Message):
    chunk: int = 0
    start: int = 0
    end: int = 0
    unknown_tags: Tags = ()

class PeerUnknown(Message):
    kind: int = 0
    id: int = 0
    unknown_tags: Tags = ()

class PeerWelcome(Message):
    proof: Buffer = ...
    unknown_tags: Tags = ()

class ProduceResponse(Message):
    responses: list[ProduceResponse.TopicProduceResponse] = ...
    throttle_time_ms: int = 0
    node_endpoints: list[ProduceResponse.NodeEndpoint] = ...
    unknown_tags: Tags = ()

    class BatchIndexAndErrorMessage(Message):
        batch_index: int = 0
        batch_index_error_message: str | None = None
        unknown_tags: Tags = ()

    class LeaderIdAndEpoch(Message):
        leader_id: int = -1
        leader_epoch: int = -1
        unknown_tags: Tags = ()

    class PartitionProduceResponse(Message):
        index: int = 0
        error_code: int = 0
        base_offset: int = 0
        log_append_time_ms: int = -1
        log_start_offset: int = -1
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = ...
        error_message: str | None = None
        current_leader: ProduceResponse.LeaderIdAndEpoch = ...
        unknown_tags: Tags = ()

    class TopicProduceResponse(Message):
        name: str = ""
        topic_id: bytes = ...
        partition_responses: list[ProduceResponse.PartitionProduceResponse] = ...
        unknown_tags: Tags = ()

    class NodeEndpoint(Message):
        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None
        unknown_tags: Tags = ()

class ProduceRequest(RequestMessage[ProduceResponse]):
    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: list[ProduceRequest.TopicProduceData] = ...
    unknown_tags: Tags = ()

    class PartitionProduceData(Message):
        index: int = 0
        records: _Records = ...
        unknown_tags: Tags = ()

    class TopicProduceData(Message):
        name: str = ""
        topic_id: bytes = ...
        partition_data: list[ProduceRequest.PartitionProduceData] = ...
        unknown_tags: Tags = ()

class ProxyAssignment(Message):
    owners: list[ProxyAssignment.Owner] = ...
    unknown_tags: Tags = ()

    class Owner(Message):
        member_id: str = ""
        address: str = ""
        instance: str = ""
        partitions: list[int] = ...
        peer: str = ""
        unknown_tags: Tags = ()

class ProxyMemberMetadata(Message):
    address: str = ""
    instance: str = ""
    owned_partitions: list[int] = ...
    peer: str = ""
    is_retiring: bool = False
    is_successor: bool = False
    unknown_tags: Tags = ()

class PushTelemetryResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_tags: Tags = ()

class PushTelemetryRequest(RequestMessage[PushTelemetryResponse]):
    client_instance_id: bytes = ...
    subscription_id: int = 0
    terminating: bool = False
    compression_type: int = 0
    metrics: Buffer = ...
    unknown_tags: Tags = ()

class ReadShareGroupStateResponse(Message):
    results: list[ReadShareGroupStateResponse.ReadStateResult] = ...
    unknown_tags: Tags = ()

    class StateBatch(Message):
        first_offset: int = 0
        last_offset: int = 0
        delivery_state: int = 0
        delivery_count: int = 0
        unknown_tags: Tags = ()

    class PartitionResult(Message):
        partition: int = 0
        error_code: int = 0
        error_message: str | None = None
        state_epoch: int = 0
        start_offset: int = 0
        state_batches: list[ReadShareGroupStateResponse.StateBatch] = ...
        unknown_tags: Tags = ()

    class ReadStateResult(Message):
        topic_id: bytes = ...
        partitions: list[ReadShareGroupStateResponse.PartitionResult] = ...
        unknown_tags: Tags = ()

class ReadShareGroupStateRequest(RequestMessage[ReadShareGroupStateResponse]):
    group_id: str = ""
    topics: list[ReadShareGroupStateRequest.ReadStateData] = ...
    unknown_tags: Tags = ()

    class PartitionData(Message):
        partition: int = 0
        leader_epoch: int = 0
        unknown_tags: Tags = ()

    class ReadStateData(Message):
        topic_id: bytes = ...
        partitions: list[ReadShareGroupStateRequest.PartitionData] = ...
        unknown_tags: Tags = ()

class ReadShareGroupStateSummaryResponse(Message):
    results: list[ReadShareGroupStateSummaryResponse.ReadStateSummaryResult] = ...
    unknown_tags: Tags = ()

    class PartitionResult(Message):
        partition: int = 0
        error_code: int = 0
        error_message: str | None = None
        state_epoch: int = 0
        leader_epoch: int = 0
        start_offset: int = 0
        delivery_complete_count: int = -1
        unknown_tags: Tags = ()

    class ReadStateSummaryResult(Message):
        topic_id: bytes = ...
        partitions: list[ReadShareGroupStateSummaryResponse.PartitionResult] = ...
        unknown_tags: Tags = ()

class ReadShareGroupStateSummaryRequest(RequestMessage[ReadShareGroupStateSummaryResponse]):
    group_id: str = ""
    topics: list[ReadShareGroupStateSummaryRequest.ReadStateSummaryData] = ...
    unknown_tags: Tags = ()

    class PartitionData(Message):
        partition: int = 0
        leader_epoch: int = 0
        unknown_tags: Tags = ()

    class ReadStateSummaryData(Message):
        topic_id: bytes = ...
        partitions: list[ReadShareGroupStateSummaryRequest.PartitionData] = ...
        unknown_tags: Tags = ()

class RedeliveryDelay(Message):
    delay_ms: int = 0
    unknown_tags: Tags = ()

class RemoveRaftVoterResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    unknown_tags: Tags = ()

class RemoveRaftVoterRequest(RequestMessage[RemoveRaftVoterResponse]):
    cluster_id: str | None = ""
    voter_id: int = 0
    voter_directory_id: bytes = ...
    unknown_tags: Tags = ()

class RenewDelegationTokenResponse(Message):
    error_code: int = 0
    expiry_timestamp_ms: int = 0
    throttle_time_ms: int = 0
    unknown_tags: Tags = ()

class RenewDelegationTokenRequest(RequestMessage[RenewDelegationTokenResponse]):
    hmac: Buffer = ...
    renew_period_ms: int = 0
    unknown_tags: Tags = ()

class RequestHeader(Message):
    request_api_key: int = 0
    request_api_version: int = 0
    correlation_id: int = 0
    client_id: str | None = ""
    unknown_tags: Tags = ()

class ResponseHeader(Message):
    correlation_id: int = 0
    unknown_tags: Tags = ()

class SaslAuthenticateResponse(Message):
    error_code: int = 0
    error_message: str | None = ""
    auth_bytes: Buffer = ...
    session_lifetime_ms: int = 0
    unknown_tags: Tags = ()

class SaslAuthenticateRequest(RequestMessage[SaslAuthenticateResponse]):
    auth_bytes: Buffer = ...
    unknown_tags: Tags = ()

class SaslHandshakeResponse(Message):
    error_code: int = 0
    mechanisms: list[str] = ...
    unknown_tags: Tags = ()

class SaslHandshakeRequest(RequestMessage[SaslHandshakeResponse]):
    mechanism: str = ""
    unknown_tags: Tags = ()

class ShareAcknowledgeResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: list[ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = ...
    node_endpoints: list[ShareAcknowledgeResponse.NodeEndpoint] = ...
    unknown_tags: Tags = ()

    class LeaderIdAndEpoch(Message):
        leader_id: int = 0
        leader_epoch: int = 0
        unknown_tags: Tags = ()

    class PartitionData(Message):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = None
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch = ...
        unknown_tags: Tags = ()

    class ShareAcknowledgeTopicResponse(Message):
        topic_id: bytes = ...
        partitions: list[ShareAcknowledgeResponse.PartitionData] = ...
        unknown_tags: Tags = ()

    class NodeEndpoint(Message):
        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None
        unknown_tags: Tags = ()

class ShareAcknowledgeRequest(RequestMessage[ShareAcknowledgeResponse]):
    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int = 0
    is_renew_ack: bool = False
    topics: list[ShareAcknowledgeRequest.AcknowledgeTopic] = ...
    unknown_tags: Tags = ()

    class AcknowledgementBatch(Message):
        first_offset: int = 0
        last_offset: int = 0
        acknowledge_types: list[int] = ...
        unknown_tags: Tags = ()

    class AcknowledgePartition(Message):
        partition_index: int = 0
        acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch] = ...
        unknown_tags: Tags = ()

    class AcknowledgeTopic(Message):
        topic_id: bytes = ...
        partitions: list[ShareAcknowledgeRequest.AcknowledgePartition] = ...
        unknown_tags: Tags = ()

class ShareFetchResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: list[ShareFetchResponse.ShareFetchableTopicResponse] = ...
    node_endpoints: list[ShareFetchResponse.NodeEndpoint] = ...
    unknown_tags: Tags = ()

    class LeaderIdAndEpoch(Message):
        leader_id: int = 0
        leader_epoch: int = 0
        unknown_tags: Tags = ()

    class AcquiredRecords(Message):
        first_offset: int = 0
        last_offset: int = 0
        delivery_count: int = 0
        unknown_tags: Tags = ()

    class PartitionData(Message):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = None
        acknowledge_error_code: int = 0
        acknowledge_error_message: str | None = None
        current_leader: ShareFetchResponse.LeaderIdAndEpoch = ...
        records: _Records = ...
        acquired_records: list[ShareFetchResponse.AcquiredRecords] = ...
        unknown_tags: Tags = ()

    class ShareFetchableTopicResponse(Message):
        topic_id: bytes = ...
        partitions: list[ShareFetchResponse.PartitionData] = ...
        unknown_tags: Tags = ()

    class NodeEndpoint(Message):
        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None
        unknown_tags: Tags = ()

class ShareFetchRequest(RequestMessage[ShareFetchResponse]):
    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int = 0
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    max_records: int = 0
    batch_size: int = 0
    share_acquire_mode: int = 0
    is_renew_ack: bool = False
    topics: list[ShareFetchRequest.FetchTopic] = ...
    forgotten_topics_data: list[ShareFetchRequest.ForgottenTopic] = ...
    unknown_tags: Tags = ()

    class AcknowledgementBatch(Message):
        first_offset: int = 0
        last_offset: int = 0
        acknowledge_types: list[int] = ...
        unknown_tags: Tags = ()

    class FetchPartition(Message):
        partition_index: int = 0
        partition_max_bytes: int = 0
        acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch] = ...
        unknown_tags: Tags = ()

    class FetchTopic(Message):
        topic_id: bytes = ...
        partitions: list[ShareFetchRequest.FetchPartition] = ...
        unknown_tags: Tags = ()

    class ForgottenTopic(Message):
        topic_id: bytes = ...
        partitions: list[int] = ...
        unknown_tags: Tags = ()

class ShareGroupDescribeResponse(Message):
    throttle_time_ms: int = 0
    groups: list[ShareGroupDescribeResponse.DescribedGroup] = ...
    unknown_tags: Tags = ()

    class TopicPartitions(Message):
        topic_id: bytes = ...
        topic_name: str = ""
        partitions: list[int] = ...
        unknown_tags: Tags = ()

    class Assignment(Message):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions] = ...
        unknown_tags: Tags = ()

    class Member(Message):
        member_id: str = ""
        rack_id: str | None = None
        member_epoch: int = 0
        client_id: str = ""
        client_host: str = ""
        subscribed_topic_names: list[str] = ...
        assignment: ShareGroupDescribeResponse.Assignment = ...
        unknown_tags: Tags = ()

    class DescribedGroup(Message):
        error_code: int = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        group_epoch: int = 0
        assignment_epoch: int = 0
        assignor_name: str = ""
        members: list[ShareGroupDescribeResponse.Member] = ...
        authorized_operations: int = -2147483648
        unknown_tags: Tags = ()

class ShareGroupDescribeRequest(RequestMessage[ShareGroupDescribeResponse]):
    group_ids: list[str] = ...
    include_authorized_operations: bool = False
    unknown_tags: Tags = ()

class ShareGroupHeartbeatResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: ShareGroupHeartbeatResponse.Assignment | None = None
    unknown_tags: Tags = ()

    class TopicPartitions(Message):
        topic_id: bytes = ...
        partitions: list[int] = ...
        unknown_tags: Tags = ()

    class Assignment(Message):
        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions] = ...
        unknown_tags: Tags = ()

class ShareGroupHeartbeatRequest(RequestMessage[ShareGroupHeartbeatResponse]):
    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None
    unknown_tags: Tags = ()

class ShareGroupKey(Message):
    group_id: str = ""
    unknown_tags: Tags = ()

class ShareGroupSettingsKey(Message):
    group_id: str = ""
    unknown_tags: Tags = ()

class ShareGroupSettingsValue(Message):
    settings: list[ShareGroupSettingsValue.Setting] = ...
    unknown_tags: Tags = ()

    class Setting(Message):
        name: str = ""
        value: str = ""
        unknown_tags: Tags = ()

class ShareGroupValue(Message):
    epoch: int = 0
    unknown_tags: Tags = ()

class SharePartitionKey(Message):
    group_id: str = ""
    topic_id: bytes = ...
    partition: int = 0
    unknown_tags: Tags = ()

class ShareSnapshotValue(Message):
    start_offset: int = 0
    state_epoch: int = 0
    delivery_complete_count: int = -1
    state_batches: list[ShareSnapshotValue.StateBatch] = ...
    unknown_tags: Tags = ()

    class StateBatch(Message):
        first_offset: int = 0
        last_offset: int = 0
        delivery_state: int = 0
        delivery_count: int = 0
        due_s: int = -1
        cause: int = 0
        unknown_tags: Tags = ()

class SlotWeights(Message):
    weights: list[float] = ...
    unknown_tags: Tags = ()

class SnapshotFooterRecord(Message):
    version: int = 0
    unknown_tags: Tags = ()

class SnapshotHeaderRecord(Message):
    version: int = 0
    last_contained_log_timestamp: int = 0
    unknown_tags: Tags = ()

class StickyUserData(Message):
    previous_assignment: list[StickyUserData.TopicAssignment] = ...
    generation: int = -1
    unknown_tags: Tags = ()

    class TopicAssignment(Message):
        topic: str = ""
        partitions: list[int] = ...
        unknown_tags: Tags = ()

class StopReplicaResponse(Message):
    unknown_tags: Tags = ()

class StopReplicaRequest(RequestMessage[StopReplicaResponse]):
    unknown_tags: Tags = ()

class StreamsGroupDescribeResponse(Message):
    throttle_time_ms: int = 0
    groups: list[StreamsGroupDescribeResponse.DescribedGroup] = ...
    unknown_tags: Tags = ()

    class KeyValue(Message):
        key: str = ""
        value: str = ""
        unknown_tags: Tags = ()

    class TopicInfo(Message):
        name: str = ""
        partitions: int = 0
        replication_factor: int = 0
        topic_configs: list[StreamsGroupDescribeResponse.KeyValue] = ...
        unknown_tags: Tags = ()

    class Subtopology(Message):
        subtopology_id: str = ""
        source_topics: list[str] = ...
        repartition_sink_topics: list[str] = ...
        state_changelog_topics: list[StreamsGroupDescribeResponse.TopicInfo] = ...
        repartition_source_topics: list[StreamsGroupDescribeResponse.TopicInfo] = ...
        unknown_tags: Tags = ()

    class Topology(Message):
        epoch: int = 0
        subtopologies: list[StreamsGroupDescribeResponse.Subtopology] | None = None
        unknown_tags: Tags = ()

    class Endpoint(Message):
        host: str = ""
        port: int = 0
        unknown_tags: Tags = ()

    class TaskOffset(Message):
        subtopology_id: str = ""
        partition: int = 0
        offset: int = 0
        unknown_tags: Tags = ()

    class TaskIds(Message):
        subtopology_id: str = ""
        partitions: list[int] = ...
        unknown_tags: Tags = ()

    class Assignment(Message):
        active_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...
        standby_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...
        warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...
        unknown_tags: Tags = ()

    class Member(Message):
        member_id: str = ""
        member_epoch: int = 0
        instance_id: str | None = None
        rack_id: str | None = None
        client_id: str = ""
        client_host: str = ""
        topology_epoch: int = 0
        process_id: str = ""
        user_endpoint: StreamsGroupDescribeResponse.Endpoint | None = None
        client_tags: list[StreamsGroupDescribeResponse.KeyValue] = ...
        task_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = ...
        task_end_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = ...
        assignment: StreamsGroupDescribeResponse.Assignment = ...
        target_assignment: StreamsGroupDescribeResponse.Assignment = ...
        is_classic: bool = False
        unknown_tags: Tags = ()

    class TopologyDescriptionNode(Message):
        name: str = ""
        node_type: int = 0
        source_topics: list[str] = ...
        sink_topic: str | None = None
        stores: list[str] = ...
        successors: list[str] = ...
        unknown_tags: Tags = ()

    class TopologyDescriptionSubtopology(Message):
        subtopology_id: str = ""
        nodes: list[StreamsGroupDescribeResponse.TopologyDescriptionNode] = ...
        unknown_tags: Tags = ()

    class TopologyDescriptionGlobalStore(Message):
        source: StreamsGroupDescribeResponse.TopologyDescriptionNode = ...
        processor: StreamsGroupDescribeResponse.TopologyDescriptionNode = ...
        unknown_tags: Tags = ()

    class TopologyDescription(Message):
        subtopologies: list[StreamsGroupDescribeResponse.TopologyDescriptionSubtopology] = ...
        global_stores: list[StreamsGroupDescribeResponse.TopologyDescriptionGlobalStore] = ...
        unknown_tags: Tags = ()

    class DescribedGroup(Message):
        error_code: int = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        group_epoch: int = 0
        assignment_epoch: int = 0
        topology: StreamsGroupDescribeResponse.Topology | None = None
        members: list[StreamsGroupDescribeResponse.Member] = ...
        authorized_operations: int = -2147483648
        topology_description: StreamsGroupDescribeResponse.TopologyDescription | None = None
        topology_description_status: int = 0
        assignor_name: str | None = None
        unknown_tags: Tags = ()

class StreamsGroupDescribeRequest(RequestMessage[StreamsGroupDescribeResponse]):
    group_ids: list[str] = ...
    include_authorized_operations: bool = False
    include_topology_description: bool = False
    unknown_tags: Tags = ()

class StreamsGroupHeartbeatResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    acceptable_recovery_lag_legacy: int = 0
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = -1
    status: list[StreamsGroupHeartbeatResponse.Status] | None = ...
    active_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None = None
    standby_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None = None
    warmup_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None = None
    topology_description_required: bool = False
    endpoint_information_epoch: int = 0
    partitions_by_user_endpoint: list[StreamsGroupHeartbeatResponse.EndpointToPartitions] | None = None
    unknown_tags: Tags = ()

    class Status(Message):
        status_code: int = 0
        status_detail: str = ""
        unknown_tags: Tags = ()

    class TaskIds(Message):
        subtopology_id: str = ""
        partitions: list[int] = ...
        unknown_tags: Tags = ()

    class Endpoint(Message):
        host: str = ""
        port: int = 0
        unknown_tags: Tags = ()

    class TopicPartition(Message):
        topic: str = ""
        partitions: list[int] = ...
        unknown_tags: Tags = ()

    class EndpointToPartitions(Message):
        user_endpoint: StreamsGroupHeartbeatResponse.Endpoint = ...
        active_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = ...
        standby_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = ...
        unknown_tags: Tags = ()

class StreamsGroupHeartbeatRequest(RequestMessage[StreamsGroupHeartbeatResponse]):
    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    endpoint_information_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: StreamsGroupHeartbeatRequest.Topology | None = None
    active_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None = None
    standby_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None = None
    warmup_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None = None
    process_id: str | None = None
    user_endpoint: StreamsGroupHeartbeatRequest.Endpoint | None = None
    client_tags: list[StreamsGroupHeartbeatRequest.KeyValue] | None = None
    task_offsets: list[StreamsGroupHeartbeatRequest.TaskOffset] | None = None
    task_end_offsets: list[StreamsGroupHeartbeatRequest.TaskOffset] | None = None
    shutdown_application: bool = False
    unknown_tags: Tags = ()

    class KeyValue(Message):
        key: str = ""
        value: str = ""
        unknown_tags: Tags = ()

    class TopicInfo(Message):
        name: str = ""
        partitions: int = 0
        replication_factor: int = 0
        topic_configs: list[StreamsGroupHeartbeatRequest.KeyValue] = ...
        unknown_tags: Tags = ()

    class CopartitionGroup(Message):
        source_topics: list[int] = ...
        source_topic_regex: list[int] = ...
        repartition_source_topics: list[int] = ...
        unknown_tags: Tags = ()

    class Subtopology(Message):
        subtopology_id: str = ""
        source_topics: list[str] = ...
        source_topic_regex: list[str] = ...
        state_changelog_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = ...
        repartition_sink_topics: list[str] = ...
        repartition_source_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = ...
        copartition_groups: list[StreamsGroupHeartbeatRequest.CopartitionGroup] = ...
        unknown_tags: Tags = ()

    class Topology(Message):
        epoch: int = 0
        subtopologies: list[StreamsGroupHeartbeatRequest.Subtopology] = ...
        unknown_tags: Tags = ()

    class TaskIds(Message):
        subtopology_id: str = ""
        partitions: list[int] = ...
        unknown_tags: Tags = ()

    class Endpoint(Message):
        host: str = ""
        port: int = 0
        unknown_tags: Tags = ()

    class TaskOffset(Message):
        subtopology_id: str = ""
        partition: int = 0
        offset: int = 0
        unknown_tags: Tags = ()

class StreamsGroupTopologyDescriptionUpdateResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    unknown_tags: Tags = ()

class StreamsGroupTopologyDescriptionUpdateRequest(RequestMessage[StreamsGroupTopologyDescriptionUpdateResponse]):
    group_id: str = ""
    member_id: str = ""
    topology_epoch: int = 0
    topology_description: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescription = ...
    unknown_tags: Tags = ()

    class TopologyDescriptionNode(Message):
        name: str = ""
        node_type: int = 0
        source_topics: list[str] = ...
        sink_topic: str | None = None
        stores: list[str] = ...
        successors: list[str] = ...
        unknown_tags: Tags = ()

    class TopologyDescriptionSubtopology(Message):
        subtopology_id: str = ""
        nodes: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode] = ...
        unknown_tags: Tags = ()

    class TopologyDescriptionGlobalStore(Message):
        source: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode = ...
        processor: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode = ...
        unknown_tags: Tags = ()

    class TopologyDescription(Message):
        subtopologies: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionSubtopology] = ...
        global_stores: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionGlobalStore] = ...
        unknown_tags: Tags = ()

class SyncGroupResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: Buffer = ...
    unknown_tags: Tags = ()

class SyncGroupRequest(RequestMessage[SyncGroupResponse]):
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: list[SyncGroupRequest.SyncGroupRequestAssignment] = ...
    unknown_tags: Tags = ()

    class SyncGroupRequestAssignment(Message):
        member_id: str = ""
        assignment: Buffer = ...
        unknown_tags: Tags = ()

class TakeoverKey(Message):
    producer_id: int = 0
    producer_epoch: int = 0
    unknown_tags: Tags = ()

class TakeoverValue(Message):
    producer_id: int = 0
    producer_epoch: int = 0
    owner: str = ""
    time_ms: int = 0
    unknown_tags: Tags = ()

class TxnOffsetCommitResponse(Message):
    throttle_time_ms: int = 0
    topics: list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic] = ...
    unknown_tags: Tags = ()

    class TxnOffsetCommitResponsePartition(Message):
        partition_index: int = 0
        error_code: int = 0
        unknown_tags: Tags = ()

    class TxnOffsetCommitResponseTopic(Message):
        name: str = ""
        topic_id: bytes = ...
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = ...
        unknown_tags: Tags = ()

class TxnOffsetCommitRequest(RequestMessage[TxnOffsetCommitResponse]):
    transactional_id: str = ""
    group_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = ...
    unknown_tags: Tags = ()

    class TxnOffsetCommitRequestPartition(Message):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        committed_metadata: str | None = ""
        unknown_tags: Tags = ()

    class TxnOffsetCommitRequestTopic(Message):
        name: str = ""
        topic_id: bytes = ...
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = ...
        unknown_tags: Tags = ()

class UnregisterBrokerResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    unknown_tags: Tags = ()

class UnregisterBrokerRequest(RequestMessage[UnregisterBrokerResponse]):
    broker_id: int = 0
    unknown_tags: Tags = ()

class UnregisterControllerResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    unknown_tags: Tags = ()

class UnregisterControllerRequest(RequestMessage[UnregisterControllerResponse]):
    controller_id: int = 0
    unknown_tags: Tags = ()

class UpdateFeaturesResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: list[UpdateFeaturesResponse.UpdatableFeatureResult] = ...
    unknown_tags: Tags = ()

    class UpdatableFeatureResult(Message):
        feature: str = ""
        error_code: int = 0
        error_message: str | None = ""
        unknown_tags: Tags = ()

class UpdateFeaturesRequest(RequestMessage[UpdateFeaturesResponse]):
    timeout_ms: int = 60000
    feature_updates: list[UpdateFeaturesRequest.FeatureUpdateKey] = ...
    validate_only: bool = False
    unknown_tags: Tags = ()

    class FeatureUpdateKey(Message):
        feature: str = ""
        max_version_level: int = 0
        allow_downgrade: bool = False
        upgrade_type: int = 1
        unknown_tags: Tags = ()

class UpdateMetadataResponse(Message):
    unknown_tags: Tags = ()

class UpdateMetadataRequest(RequestMessage[UpdateMetadataResponse]):
    unknown_tags: Tags = ()

class UpdateRaftVoterResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    current_leader: UpdateRaftVoterResponse.CurrentLeader = ...
    unknown_tags: Tags = ()

    class CurrentLeader(Message):
        leader_id: int = -1
        leader_epoch: int = -1
        host: str = ""
        port: int = 0
        unknown_tags: Tags = ()

class UpdateRaftVoterRequest(RequestMessage[UpdateRaftVoterResponse]):
    cluster_id: str | None = ""
    current_leader_epoch: int = 0
    voter_id: int = 0
    voter_directory_id: bytes = ...
    listeners: list[UpdateRaftVoterRequest.Listener] = ...
    k_raft_version_feature: UpdateRaftVoterRequest.KRaftVersionFeature = ...
    unknown_tags: Tags = ()

    class Listener(Message):
        name: str = ""
        host: str = ""
        port: int = 0
        unknown_tags: Tags = ()

    class KRaftVersionFeature(Message):
        min_supported_version: int = 0
        max_supported_version: int = 0
        unknown_tags: Tags = ()

class ViewBindingKey(Message):
    view: str = ""
    unknown_tags: Tags = ()

class ViewBindingValue(Message):
    view_id: bytes = ...
    base_id: bytes = ...
    unknown_tags: Tags = ()

class ViewPlanKey(Message):
    plan_id: str = ""
    unknown_tags: Tags = ()

class ViewPlanValue(Message):
    topic: str = ""
    starts: list[int] = ...
    weights: list[float] = ...
    unknown_tags: Tags = ()

class VoteResponse(Message):
    error_code: int = 0
    topics: list[VoteResponse.TopicData] = ...
    node_endpoints: list[VoteResponse.NodeEndpoint] = ...
    unknown_tags: Tags = ()

    class PartitionData(Message):
        partition_index: int = 0
        error_code: int = 0
        leader_id: int = 0
        leader_epoch: int = 0
        vote_granted: bool = False
        unknown_tags: Tags = ()

    class TopicData(Message):
        topic_name: str = ""
        partitions: list[VoteResponse.PartitionData] = ...
        unknown_tags: Tags = ()

    class NodeEndpoint(Message):
        node_id: int = 0
        host: str = ""
        port: int = 0
        unknown_tags: Tags = ()

class VoteRequest(RequestMessage[VoteResponse]):
    cluster_id: str | None = None
    voter_id: int = -1
    topics: list[VoteRequest.TopicData] = ...
    unknown_tags: Tags = ()

    class PartitionData(Message):
        partition_index: int = 0
        replica_epoch: int = 0
        replica_id: int = 0
        replica_directory_id: bytes = ...
        voter_directory_id: bytes = ...
        last_offset_epoch: int = 0
        last_offset: int = 0
        pre_vote: bool = False
        unknown_tags: Tags = ()

    class TopicData(Message):
        topic_name: str = ""
        partitions: list[VoteRequest.PartitionData] = ...
        unknown_tags: Tags = ()

class VotersRecord(Message):
    version: int = 0
    voters: list[VotersRecord.Voter] = ...
    unknown_tags: Tags = ()

    class Endpoint(Message):
        name: str = ""
        host: str = ""
        port: int = 0
        unknown_tags: Tags = ()

    class KRaftVersionFeature(Message):
        min_supported_version: int = 0
        max_supported_version: int = 0
        unknown_tags: Tags = ()

    class Voter(Message):
        voter_id: int = 0
        voter_directory_id: bytes = ...
        endpoints: list[VotersRecord.Endpoint] = ...
        k_raft_version_feature: VotersRecord.KRaftVersionFeature = ...
        unknown_tags: Tags = ()

class WriteShareGroupStateResponse(Message):
    results: list[WriteShareGroupStateResponse.WriteStateResult] = ...
    unknown_tags: Tags = ()

    class PartitionResult(Message):
        partition: int = 0
        error_code: int = 0
        error_message: str | None = None
        unknown_tags: Tags = ()

    class WriteStateResult(Message):
        topic_id: bytes = ...
        partitions: list[WriteShareGroupStateResponse.PartitionResult] = ...
        unknown_tags: Tags = ()

class WriteShareGroupStateRequest(RequestMessage[WriteShareGroupStateResponse]):
    group_id: str = ""
    topics: list[WriteShareGroupStateRequest.WriteStateData] = ...
    unknown_tags: Tags = ()

    class StateBatch(Message):
        first_offset: int = 0
        last_offset: int = 0
        delivery_state: int = 0
        delivery_count: int = 0
        unknown_tags: Tags = ()

    class PartitionData(Message):
        partition: int = 0
        state_epoch: int = 0
        leader_epoch: int = 0
        start_offset: int = 0
        delivery_complete_count: int = -1
        state_batches: list[WriteShareGroupStateRequest.StateBatch] = ...
        unknown_tags: Tags = ()

    class WriteStateData(Message):
        topic_id: bytes = ...
        partitions: list[WriteShareGroupStateRequest.PartitionData] = ...
        unknown_tags: Tags = ()

class WriteTxnMarkersResponse(Message):
    markers: list[WriteTxnMarkersResponse.WritableTxnMarkerResult] = ...
    unknown_tags: Tags = ()

    class WritableTxnMarkerPartitionResult(Message):
        partition_index: int = 0
        error_code: int = 0
        unknown_tags: Tags = ()

    class WritableTxnMarkerTopicResult(Message):
        name: str = ""
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = ...
        unknown_tags: Tags = ()

    class WritableTxnMarkerResult(Message):
        producer_id: int = 0
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = ...
        unknown_tags: Tags = ()

class WriteTxnMarkersRequest(RequestMessage[WriteTxnMarkersResponse]):
    markers: list[WriteTxnMarkersRequest.WritableTxnMarker] = ...
    unknown_tags: Tags = ()

    class WritableTxnMarkerTopic(Message):
        name: str = ""
        partition_indexes: list[int] = ...
        unknown_tags: Tags = ()

    class WritableTxnMarker(Message):
        producer_id: int = 0
        producer_epoch: int = 0
        transaction_result: bool = False
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = ...
        coordinator_epoch: int = 0
        transaction_version: int = 0
        unknown_tags: Tags = ()
