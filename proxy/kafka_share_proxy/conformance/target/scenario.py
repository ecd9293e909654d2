"""Scenario files (YAML): the cluster at its start, and steps at a time or at a request.

A step does an action of the HTTP control: `do` is its path, `with` its values.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from kafka_share_proxy.conformance.target.actions import Action, ActionError, NewFault, NewTopic, api_key, mistakes
from kafka_share_proxy.conformance.target.server import TargetServer

FILE_BYTES_MAX = 1 << 20
STEPS_MAX = 1_000


class ScenarioError(Exception):
    """A scenario that cannot be used. The text names every mistake with the path of its key."""


class ScenarioPart(BaseModel):
    """A mapping of the file."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class RequestTrigger(ScenarioPart):
    """Request at which a step is done, before the request is executed."""

    api: int
    nth: Annotated[int, Field(ge=1)] = 1
    node: int | None = None
    client_id: str | None = None

    @field_validator("api", mode="before")
    @classmethod
    def _key(cls, value: object) -> int:
        return api_key(value)


class ScenarioStep(ScenarioPart):
    """An action, and when it is done: at a time of the cluster's clock, at a request, or at the start."""

    do: str
    values: dict[str, Any] = Field(default_factory=dict, alias="with")
    at_ms: Annotated[int, Field(ge=0)] | None = None
    when: RequestTrigger | None = None

    def action(self) -> Action:
        """Return the action. Raises ActionError."""
        return Action(self.do, self.values)


class Scenario(ScenarioPart):
    """A scenario file."""

    seed: int | None = None
    nodes: Annotated[int, Field(ge=1, le=100)] | None = None
    clock: Literal["running", "stopped"] = "running"
    start_ms: Annotated[int, Field(ge=0)] | None = None
    """Wall time at the start, in milliseconds since 1970."""
    users: dict[str, str] = Field(default_factory=dict)
    topics: list[NewTopic] = Field(default_factory=list)
    faults: list[NewFault] = Field(default_factory=list)
    steps: Annotated[list[ScenarioStep], Field(max_length=STEPS_MAX)] = Field(default_factory=list)


def load(path: str) -> Scenario:
    """Read a file. Raises ScenarioError."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ScenarioError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ScenarioError(f"{path} has more than {FILE_BYTES_MAX} bytes")
    try:
        values = yaml.safe_load(data)
    except yaml.YAMLError as error:
        raise ScenarioError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    return parse(values, path)


def parse(values: object, name: str = "scenario") -> Scenario:
    """Check the values of a file. Raises ScenarioError."""
    if values is None:
        values = {}
    try:
        scenario = Scenario.model_validate(values)
    except ValidationError as error:
        raise ScenarioError(mistakes(error, prefix=f"{name}: ")) from None
    for index, step in enumerate(scenario.steps):
        try:
            step.action()
        except ActionError as error:
            raise ScenarioError(f"{name}: steps.{index}: {error}") from None
        if step.at_ms is not None and step.when is not None:
            raise ScenarioError(f"{name}: steps.{index}: at_ms and when exclude each other")
    return scenario


async def prepare(scenario: Scenario, server: TargetServer) -> None:
    """Bring a cluster into the state of the scenario's start. Raises ScenarioError."""
    if scenario.clock == "stopped":
        server.clock.stop()
    for user, password in scenario.users.items():
        server.add_user(user, password)
    try:
        for topic in scenario.topics:
            await Action("topics", topic.model_dump()).apply(server)
        for fault in scenario.faults:
            server.faults.add(fault.fault())
        for step in scenario.steps:
            await _place(step, server)
    except (ActionError, ValueError) as error:
        raise ScenarioError(str(error)) from None


async def _place(step: ScenarioStep, server: TargetServer) -> None:
    """Do a step, or let the server do it later."""
    action = step.action()
    if step.when is not None:
        server.before_request(_Trigger(step.when, action, server).on_request)
    elif step.at_ms:
        server.run_at(step.at_ms / 1000, _applied(action, server))
    else:
        await action.apply(server)


class _Trigger:
    """A step that waits for its request."""

    def __init__(self, request: RequestTrigger, action: Action, server: TargetServer) -> None:
        self._request = request
        self._action = action
        self._server = server
        self._remaining = request.nth

    async def on_request(self, key: int, node: int, client_id: str) -> None:
        selected = self._request
        if selected.api == key and selected.node in (None, node) and selected.client_id in (None, client_id):
            self._remaining -= 1
            if self._remaining == 0:
                await _applied(self._action, self._server)()


def _applied(action: Action, server: TargetServer) -> Callable[[], Awaitable[None]]:
    async def apply() -> None:
        try:
            await action.apply(server)
        except ActionError as error:
            server.failures.append(error)

    return apply
