"""Handlers say which message they take, and mypy holds them to its fields."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

import pytest
from kafka_share_proxy.commits import commit_apis
from kafka_share_proxy.forwarding.apis import k10_find_coordinator
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.views import view_apis
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages, registry

from tests.support import commit_world, ports, sources, type_checker, view_broker

CHECKOUT = Path(__file__).resolve().parents[2]
README = CHECKOUT / "proxy" / "README.md"
ROOMS = "proxy/kafka_share_proxy"
HANDLERS = sorted((CHECKOUT / "proxy" / "kafka_share_proxy").glob("*/apis/*.py"))
MYPY = ("--no-error-summary", "--hide-error-context")

NOT_TYPED: dict[str, str] = {
    f"{ROOMS}/sharegroups/apis/k44_incremental_alter_configs.py": "serves two APIs whose messages have the same fields",
}
"""Files of handlers that name Any, each with its reason. The list may only shrink."""

APIS: tuple[tuple[DeclaredApi[Any], Any], ...] = (
    *((api, ports.World().services) for api in share_group_apis.APIS),
    *((api, view_broker.World().views) for api in view_apis.APIS),
    *((api, commit_world.CommitWorld().services) for api in (*commit_apis.COMMITS, *commit_apis.DELETIONS)),
    (k10_find_coordinator.IN_PARTS, None),
)
"""Every declaration, and what its handlers are given."""


def functions_of(api: DeclaredApi[Any], services: Any) -> Iterator[Callable[..., Any]]:
    """Yield those that are given a call."""
    yield api.handle
    if api.respond_unavailable is not None:
        yield api.respond_unavailable
    if api.picks is not None:
        yield api.picks(services)


def taken_by(function: Callable[..., Any]) -> tuple[Any, ...]:
    """The classes of request that a function may be called with; its first parameter is the call."""
    hints = get_type_hints(function)
    call_type = next(iter(hints.values()))
    assert call_type.__origin__ is Call, function
    (kind,) = call_type.__args__
    if isinstance(kind, TypeVar) and kind.__constraints__:
        return tuple(eval(each.__forward_arg__, function.__globals__) for each in kind.__constraints__)
    kind = kind.__bound__ if isinstance(kind, TypeVar) else kind
    return get_args(kind) or (kind,)


def wrong_functions(api: DeclaredApi[Any], services: Any) -> list[str]:
    """Functions of an API that take another request, or give another response."""
    name = registry.API_KEYS[api.key]
    request, response = registry.message(f"{name}Request"), registry.message(f"{name}Response")
    response_types = {bytes, NoneType, bool, frames.Pieces, messages.Message, response}
    if api.key in (33, 44):  # one function for both
        response_types.add(messages.IncrementalAlterConfigsResponse)
    wrong = []
    for function in functions_of(api, services):
        hint = get_type_hints(function)["return"]
        if not any(issubclass(request, each) for each in taken_by(function)):
            wrong.append(f"{function.__module__}.{function.__qualname__} does not take {name}Request")
        if not {*(get_args(hint) or (hint,))} <= response_types:
            wrong.append(f"{function.__module__}.{function.__qualname__} does not give {name}Response")
    return wrong


def test_a_handler_takes_the_request_of_its_api() -> None:
    """The key and the class stand in two places of one file; mypy knows nothing of keys."""
    assert [sentence for api, services in APIS for sentence in wrong_functions(api, services)] == []


def test_a_handler_of_another_request_is_found() -> None:
    async def handle(call: Call[messages.FetchRequest], _: Any) -> messages.FetchResponse:
        return messages.FetchResponse(throttle_time_ms=call.version)

    wrong = wrong_functions(DeclaredApi(key=78, handle=handle), None)
    reported = [sentence.split("does not ")[1] for sentence in wrong]
    assert reported == ["take ShareFetchRequest", "give ShareFetchResponse"]


def test_what_splits_a_request_names_fields_that_it_has() -> None:
    """The one place where fields are named by strings."""
    split = [(api.key, api.splits) for api, _ in APIS if api.splits is not None]
    assert split
    for key, splits in split:
        assert splits.field in registry.message(f"{registry.API_KEYS[key]}Request").FIELDS
        assert splits.responses in registry.message(f"{registry.API_KEYS[key]}Response").FIELDS


def test_no_handler_takes_just_anything() -> None:
    untyped = {path.relative_to(CHECKOUT).as_posix() for path in HANDLERS if _names_any(path)}
    assert untyped == set(NOT_TYPED)


def _names_any(path: Path) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "Any" for node in sources.nodes(path.read_text()))


def test_a_message_that_code_knows_is_not_named_by_a_string() -> None:
    """mypy cannot follow `registry.message("FetchRequest")`, nor a codec requested by a string."""
    places = [
        f"{path.relative_to(CHECKOUT)}:{node.lineno}"
        for path in sorted((CHECKOUT / "proxy").rglob("*.py"))
        for node in sources.nodes(path.read_text())
        if isinstance(node, ast.Call)
        and sources.called(node) in {"message", "codec"}
        and ast.unparse(node.func) in {"registry.message", "registry.codec"}
        and isinstance(node.args[0], ast.Constant)
    ]
    assert places == []


MISTYPED = """\
from kafka_share_proxy.forwarding.served.upstream_requests import send_upstream, reply
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.wire.definitions import messages


async def handle(call: Call[messages.ShareFetchRequest]) -> bytes:
    answer = await send_upstream(call, call.message)
    print(call.message.groupid)  # error: "ShareFetchRequest" has no attribute "groupid"
    print(answer.responses[0].partition)  # error: "ShareFetchableTopicResponse" has no attribute "partition"
    answer.error_code = "none"  # error: Incompatible types in assignment
    messages.ShareFetchResponse(errorcode=0)  # error: Unexpected keyword argument "errorcode"
    print(call.message.group_id.encode())  # error: Item "None" of "str | None" has no attribute "encode"
    print(messages.ShareFetchRequets)  # error: Module has no attribute "ShareFetchRequets"
    return reply(call, messages.FetchResponse())  # error: Cannot infer value of type parameter "R" of "reply"
"""


def mypy_says(path: Path) -> list[tuple[int, str]]:
    """Line and error, of one file."""
    status, output = type_checker.mypy(*MYPY, str(path))
    errors = re.findall(rf"^.*\b{re.escape(path.name)}:(\d+): error: (.*)$", output, re.MULTILINE)
    assert status == bool(errors), output
    return [(int(line), error) for line, error in errors]


@pytest.mark.xdist_group(type_checker.GROUP)
def test_a_mistyped_field_is_found() -> None:
    """Requests, responses, structures and constructors are checked; also an unhandled null, and a wrong response."""
    path = type_checker.program("handler.py", MISTYPED)
    expected = [
        (n, line.split("# error: ")[1]) for n, line in enumerate(MISTYPED.splitlines(), 1) if "# error: " in line
    ]
    reported = mypy_says(path)
    assert [line for line, _ in reported] == [line for line, _ in expected]
    for (_, error), (_, start) in zip(reported, expected, strict=True):
        assert error.startswith(start)


@pytest.mark.xdist_group(type_checker.GROUP)
def test_the_handler_of_the_worked_example_is_checked() -> None:
    """With the text of `proxy/README.md`, and with one letter less."""
    example = README.read_text().split("```python\n", 1)[1].split("```", 1)[0]
    path = type_checker.program("k35_describe_log_dirs.py", example)
    assert mypy_says(path) == []
    type_checker.program(path.name, example.replace("log_dir.total_bytes", "log_dir.total_byte"))
    ((_, error),) = mypy_says(path)
    assert error.startswith('"DescribeLogDirsResult" has no attribute "total_byte"')
