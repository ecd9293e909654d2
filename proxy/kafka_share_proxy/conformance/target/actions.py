"""Everything that a test may do to a cluster, by name: the paths of the HTTP control and the steps of a scenario.

A name is a path such as `leaders/move` or `nodes/2/down`. Its values are JSON or YAML, checked by a model.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.conformance.target.error_responses import Level
from kafka_share_proxy.conformance.target.faults import Fault
from kafka_share_proxy.conformance.target.server import TargetServer
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

DAY_MS = 86_400_000
ADVANCE_MAX_MS = 366 * DAY_MS
"""Longest step of the clock."""

Partition = Annotated[int, Field(ge=0)]
Offset = Annotated[int, Field(ge=0)]
Milliseconds = Annotated[int, Field(ge=0, le=DAY_MS)]


def _setting(value: Any) -> Any:
    """Return a number or boolean of JSON, YAML or Python as the text that Kafka expects."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Configs = dict[str, Annotated[str, BeforeValidator(_setting)]]


class ActionError(Exception):
    """An action that cannot be done. The text says what is wrong, one line for each mistake."""

    def __init__(self, text: str, *, unknown: bool = False) -> None:
        super().__init__(text)
        self.unknown = unknown
        """True if there is no such action, or it names something that does not exist."""


class Values(BaseModel):
    """Values of an action."""

    model_config = ConfigDict(extra="forbid", strict=False)


class Nothing(Values):
    """No values."""


class Advance(Values):
    """Milliseconds that the clock is moved forward."""

    ms: Annotated[int, Field(ge=0, le=ADVANCE_MAX_MS)]


class NewTopic(Values):
    """A topic to create."""

    name: str
    partitions: Annotated[int, Field(ge=1)] = 1
    replication: Annotated[int, Field(ge=1)] | None = None
    configs: Configs = Field(default_factory=dict)


class NodeNumber(Values):
    """A node."""

    node: int


class TopicName(Values):
    """A topic."""

    topic: str


class PartitionName(TopicName):
    """A partition."""

    partition: Partition = 0


class NewRecords(PartitionName):
    """Records to append in one batch: texts, with one key."""

    values: Annotated[list[str], Field(min_length=1)]
    key: str | None = None


class NewPlan(Values):
    """Key ranges of views: the first hash of each, in ascending order from 0."""

    plan: str
    starts: list[int]


class LeaderMove(PartitionName):
    """The new leader of a partition."""

    node: int


class CoordinatorMove(NodeNumber):
    """The new coordinator of a group or a transactional id."""

    key: str
    """Group id, transactional id, or GROUP:TOPIC_ID:PARTITION of the state of a share group."""
    kind: Literal["group", "transaction", "share"] = "group"


class Truncation(PartitionName):
    """First offset that is lost."""

    offset: Offset


class RecordDeletion(PartitionName):
    """First offset that is kept."""

    before: Offset


class NewUser(Values):
    """A user with a password, for PLAIN and SCRAM."""

    user: Annotated[str, Field(min_length=1)]
    password: Annotated[str, Field(min_length=1)]


class GroupConfigValues(Values):
    """Settings of a group, such as share.auto.offset.reset and share.record.lock.duration.ms."""

    group: Annotated[str, Field(min_length=1)]
    configs: Configs


class NewFault(Values):
    """A fault. See faults.Fault."""

    api: int | None = None
    node: int | None = None
    client_id: str = "*"
    nth: Annotated[int, Field(ge=1)] = 1
    count: Annotated[int, Field(ge=1)] | None = 1
    probability: Annotated[float, Field(gt=0, le=1)] = 1.0
    error: ErrorCode | None = None
    at: Level = "auto"
    execute: bool = False
    delay_ms: Milliseconds = 0
    throttle_ms: Milliseconds | None = None
    correlation_id_shift: int = 0
    cut_after: Annotated[int, Field(ge=0)] | None = None
    half_frame: bool = False
    lose: bool = False
    duplicate: bool = False

    @field_validator("api", mode="before")
    @classmethod
    def _key(cls, value: object) -> int | None:
        return None if value is None else api_key(value)

    @field_validator("error", mode="before")
    @classmethod
    def _code(cls, value: object) -> ErrorCode | None:
        if value is None or isinstance(value, int):
            return None if value is None else ErrorCode.of(value)
        if str(value) not in ErrorCode.__members__:
            raise ValueError("is no error of Kafka; write its name or number, for example NOT_COORDINATOR or 16")
        return ErrorCode[str(value)]

    def fault(self) -> Fault:
        """Return the fault."""
        return Fault(**{name: getattr(self, name) for name in type(self).model_fields})


class FaultNumber(Values):
    """A fault in the plan."""

    number: int


def api_key(value: object) -> int:
    """Return the key of an API by its name or number. Raises ValueError."""
    keys = {name.lower(): key for key, name in registry.API_KEYS.items()}
    if isinstance(value, int) and value in registry.API_KEYS:
        return value
    if str(value).lower() in keys:
        return keys[str(value).lower()]
    raise ValueError("is no API; write its name or key, for example ShareFetch or 78")


async def _stop(server: TargetServer, _: Nothing) -> None:
    server.clock.stop()


async def _resume(server: TargetServer, _: Nothing) -> None:
    server.clock.resume()


async def _advance(server: TargetServer, values: Advance) -> None:
    server.clock.advance(values.ms / 1000)


async def _create_topic(server: TargetServer, values: NewTopic) -> None:
    server.cluster.create_topic(values.name, values.partitions, replication=values.replication, configs=values.configs)


async def _delete_topic(server: TargetServer, values: TopicName) -> None:
    server.cluster.delete_topic(values.topic)


async def _recreate_topic(server: TargetServer, values: TopicName) -> None:
    server.cluster.recreate_topic(values.topic)


async def _append_records(server: TargetServer, values: NewRecords) -> dict[str, Any]:
    key = None if values.key is None else values.key.encode()
    values_to_append = [value.encode() for value in values.values]
    return {"offset": server.cluster.append_records(values.topic, values.partition, values_to_append, key)}


async def _store_plan(server: TargetServer, values: NewPlan) -> None:
    from kafka_share_proxy.conformance.target.views import store_plan
    from kafka_share_proxy.views.model.plans import BadPlan, Plan

    try:
        store_plan(server.cluster, Plan(values.plan, tuple(values.starts)))
    except BadPlan as error:
        raise ValueError(str(error)) from None


async def _move_leader(server: TargetServer, values: LeaderMove) -> None:
    server.cluster.move_leader(values.topic, values.partition, values.node)


async def _move_coordinator(server: TargetServer, values: CoordinatorMove) -> None:
    server.cluster.move_coordinator(CoordinatorKind[values.kind.upper()], values.key, values.node)


async def _down(server: TargetServer, values: NodeNumber) -> None:
    await server.take_node_down(values.node)


async def _up(server: TargetServer, values: NodeNumber) -> None:
    await server.bring_node_up(values.node)


async def _refuse(server: TargetServer, values: NodeNumber) -> None:
    await server.refuse_connections(values.node)


async def _accept(server: TargetServer, values: NodeNumber) -> None:
    await server.accept_connections(values.node)


async def _cut(server: TargetServer, values: NodeNumber) -> None:
    server.cut_connections(values.node)


async def _bump_epoch(server: TargetServer, values: PartitionName) -> None:
    server.cluster.bump_leader_epoch(values.topic, values.partition)


async def _truncate(server: TargetServer, values: Truncation) -> None:
    server.cluster.truncate_log(values.topic, values.partition, values.offset)


async def _delete_records(server: TargetServer, values: RecordDeletion) -> None:
    server.cluster.delete_records(values.topic, values.partition, values.before)


async def _configure_group(server: TargetServer, values: GroupConfigValues) -> None:
    configs = server.cluster.group_configs
    stored = {**configs.stored(values.group), **values.configs}
    unknown = sorted(values.configs.keys() - configs.keys().keys())
    mistake = f"there is no setting {unknown[0]}" if unknown else configs.mistake(stored)
    if mistake is not None:
        raise ValueError(mistake)
    configs.store(values.group, stored)


async def _add_user(server: TargetServer, values: NewUser) -> None:
    server.add_user(values.user, values.password)


async def _add_fault(server: TargetServer, values: NewFault) -> dict[str, Any]:
    return {"number": server.faults.add(values.fault())}


async def _delete_fault(server: TargetServer, values: FaultNumber) -> None:
    server.faults.remove(values.number)


async def _clear_faults(server: TargetServer, _: Nothing) -> None:
    server.faults.clear()


async def _clear_findings(server: TargetServer, _: Nothing) -> None:
    server.judge.findings.clear()


Apply = Callable[[TargetServer, Any], Awaitable[dict[str, Any] | None]]

ACTIONS: Mapping[str, tuple[type[Values], Apply]] = {
    "clock/stop": (Nothing, _stop),
    "clock/resume": (Nothing, _resume),
    "clock/advance": (Advance, _advance),
    "topics": (NewTopic, _create_topic),
    "topics/{topic}/delete": (TopicName, _delete_topic),
    "topics/{topic}/recreate": (TopicName, _recreate_topic),
    "topics/{topic}/records": (NewRecords, _append_records),
    "views/plans": (NewPlan, _store_plan),
    "leaders/move": (LeaderMove, _move_leader),
    "coordinators/move": (CoordinatorMove, _move_coordinator),
    "nodes/{node}/down": (NodeNumber, _down),
    "nodes/{node}/up": (NodeNumber, _up),
    "nodes/{node}/refuse": (NodeNumber, _refuse),
    "nodes/{node}/accept": (NodeNumber, _accept),
    "nodes/{node}/cut": (NodeNumber, _cut),
    "epochs/bump": (PartitionName, _bump_epoch),
    "logs/truncate": (Truncation, _truncate),
    "logs/delete": (RecordDeletion, _delete_records),
    "groups/configs": (GroupConfigValues, _configure_group),
    "users": (NewUser, _add_user),
    "faults": (NewFault, _add_fault),
    "faults/{number}/delete": (FaultNumber, _delete_fault),
    "faults/clear": (Nothing, _clear_faults),
    "report/clear": (Nothing, _clear_findings),
}
"""Model and function of every action by its path."""


class Action:
    """An action with checked values."""

    def __init__(self, path: str, values: Mapping[str, Any]) -> None:
        """Check the values. Raises ActionError."""
        pattern, parts = _pattern_of(path)
        self.path = path
        model, self._apply = ACTIONS[pattern]
        try:
            self._values = model.model_validate({**values, **parts})
        except ValidationError as error:
            raise ActionError(mistakes(error, prefix=f"{path}: ")) from None

    async def apply(self, server: TargetServer) -> dict[str, Any]:
        """Do it. Return details. Raises ActionError."""
        try:
            return await self._apply(server, self._values) or {}
        except KeyError as error:
            raise ActionError(f"{self.path}: there is no {error}", unknown=True) from None
        except ValueError as error:
            raise ActionError(f"{self.path}: {error}") from None
        except OSError as error:
            raise ActionError(f"{self.path}: {error.strerror or error}") from None


def _pattern_of(path: str) -> tuple[str, dict[str, str]]:
    """Return the pattern of a path and the values in it. Raises ActionError."""
    for pattern in ACTIONS:
        expression = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(pattern))
        if (match := re.fullmatch(expression, path.strip("/"))) is not None:
            return pattern, match.groupdict()
    raise ActionError(f"there is no action {path!r}; actions are {', '.join(ACTIONS)}", unknown=True)


def mistakes(error: ValidationError, prefix: str = "") -> str:
    """Return a line for each mistake, with the path of its key."""
    lines = []
    for details in error.errors(include_url=False, include_context=False):
        path = ".".join(str(part) for part in details["loc"])
        if details["type"] == "extra_forbidden":
            problem = "there is no such key"
        elif details["type"] == "missing":
            problem = "is missing"
        else:
            problem = f"{details['msg'].removeprefix('Value error, ')} (it is {details['input']!r})"
        lines.append(f"{prefix}{path}: {problem}" if path else f"{prefix}{problem}")
    return "\n".join(lines)
