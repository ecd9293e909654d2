"""Cases of ApiVersions, headers, frames and the layouts of every response."""

from __future__ import annotations

import struct
from typing import Any

from kafka_share_proxy.conformance.suite import harmless_requests
from kafka_share_proxy.conformance.suite.building import KEYS, build
from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import COORDINATOR_NOT_READY
from kafka_share_proxy.conformance.suite.connection import PeerConnection
from kafka_share_proxy.conformance.suite.expectations import Mismatch, NotOffered, equal, one_of, true
from kafka_share_proxy.conformance.suite.harmless_requests import GROUP, NAME, TRANSACTION, HarmlessRequest
from kafka_share_proxy.wire.codec import frames, headers
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

API_VERSIONS = 18
SCHEMA = "KIP-35, KIP-511; ApiVersionsResponse.json"
HEADERS = "RequestHeader.json, ResponseHeader.json; KIP-482"
UNKNOWN_TAG = 31_000
CLIENT = {"client_software_name": "conformance", "client_software_version": "1"}


@case_for_each(
    {str(version): (version,) for version in range(6)},
    "apiversions.versions.v{name}",
    SCHEMA,
    needs=("ApiVersions:{0}",),
)
async def each_version(run: CaseRun, version: int) -> None:
    """ApiVersions v{0} returns a range for each API, ApiVersions itself included."""
    connection = await run.connect()
    response = await connection.request("ApiVersions", version, **(CLIENT if version >= 3 else {}))
    equal("ErrorCode", response.error_code, ErrorCode.NONE)
    ranges = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    equal("number of entries for each key", len(ranges), len(list(response.api_keys)))
    first, last = ranges[API_VERSIONS]
    true("range of ApiVersions", first <= version <= last, f"contains {version}", (first, last))
    empty = {key: span for key, span in ranges.items() if not 0 <= span[0] <= span[1]}
    equal("empty or negative ranges", empty, {})


@case("apiversions.versions.same-in-all", SCHEMA)
async def same_in_all(run: CaseRun) -> None:
    """Every version of ApiVersions below 4 returns the same ranges."""
    connection = await run.connect()
    actual = []
    for version in range(4):
        response = await connection.request("ApiVersions", version, **(CLIENT if version == 3 else {}))
        actual.append({each.api_key: (each.min_version, each.max_version) for each in response.api_keys})
    equal("ranges of versions 1 to 3", actual[1:], [actual[0]] * 3)


@case("apiversions.versions.too-high", "KIP-511; ApiVersionsResponse.json")
async def too_high(run: CaseRun) -> None:
    """An unknown version of ApiVersions gets UNSUPPORTED_VERSION in the layout of version 0, with its own range."""
    connection = await run.connect()
    frame = struct.pack(">hhih", API_VERSIONS, 99, 77, 1) + b"c" + b"\0"
    exchange = await connection.send_frame(API_VERSIONS, 0, frame)
    response = await connection.receive(exchange)
    equal("ErrorCode", response.error_code, ErrorCode.UNSUPPORTED_VERSION)
    listed = {each.api_key: each.max_version for each in response.api_keys}
    equal("highest version of ApiVersions", listed.get(API_VERSIONS), run.capabilities.versions[API_VERSIONS][1])
    equal("ErrorCode of the next request", (await connection.request("ApiVersions", 0)).error_code, ErrorCode.NONE)


@case_for_each(
    {"empty": ("",), "space": ("a b",), "slash": ("a/b",)},
    "apiversions.versions.software-name-{name}",
    "KIP-511; ApiVersionsRequest.isValid",
)
async def software_name(run: CaseRun, name: str) -> None:
    """ApiVersions v3 with the client software name {0!r} gets INVALID_REQUEST."""
    connection = await run.connect()
    response = await connection.request("ApiVersions", 3, client_software_name=name, client_software_version="1")
    equal("ErrorCode", response.error_code, ErrorCode.INVALID_REQUEST)


@case("apiversions.features.consistent", "KIP-584; ApiVersionsResponse.json", needs=("ApiVersions:4",))
async def features(run: CaseRun) -> None:
    """Each finalized feature is supported at its level (v4: earlier versions leave out those from level 0)."""
    response = await run.request("ApiVersions", await run.connect(), 4, **CLIENT)
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    wrong = {
        each.name: each.max_version_level
        for each in response.finalized_features
        if each.name not in supported or not each.max_version_level <= supported[each.name][1]
    }
    equal("finalized features beyond the supported ones", wrong, {})


@case("apiversions.versions.fetch-with-produce", "ApiKeys (broker listener)")
async def basics(run: CaseRun) -> None:
    """A broker offers Produce, Fetch, Metadata, FindCoordinator and ApiVersions."""
    needed = {"Produce", "Fetch", "Metadata", "FindCoordinator", "ApiVersions"}
    missing = sorted(api for api in needed if KEYS[api] not in run.capabilities.versions)
    equal("missing APIs", missing, [])


# Layouts


async def peer_of(run: CaseRun, request: HarmlessRequest) -> PeerConnection:
    """Return a new connection to the broker that serves a request."""
    kinds = {GROUP: 0, TRANSACTION: 1}
    if request.to not in kinds:
        return await run.connect()
    return await run.connect(await run.cluster.coordinator(await run.connection(), NAME, kinds[request.to]))


@case_for_each(
    {f"{each.api}.v{version}": (each.api, version, each) for each, version in harmless_requests.by_version()},
    "apiversions.layout.{name}",
    "the schema of the response; RequestHeader.json, ResponseHeader.json",
    needs=("{0}:{1}",),
)
async def layout(run: CaseRun, api: str, version: int, request: HarmlessRequest) -> None:
    """The response to {0} v{1} has the layout and header of that version, and the value that its request calls for."""
    connection = await peer_of(run, request)

    async def loaded() -> Any:
        response = await connection.request(api, version, **request.fields)
        is_early = request.to in {GROUP, TRANSACTION} and request.value(response) in COORDINATOR_NOT_READY
        return None if is_early else response

    response = await run.until(loaded, "a coordinator that has loaded its state")
    one_of(request.path, request.value(response), request.expected)


def newest_version(run: CaseRun, api: str) -> int:
    """Return the highest version that both sides know. Raises NotOffered."""
    request = harmless_requests.newest()[api]
    if KEYS[api] not in run.capabilities.versions:
        raise NotOffered(f"{api} is not offered")
    version = min(run.capabilities.versions[KEYS[api]][1], request.last)
    if version < request.first:
        raise NotOffered(f"{api} is offered up to version {version}")
    return version


def encoded(api: str, version: int, request: HarmlessRequest, **changed: Any) -> bytes:
    """Return the frame of a request, without size."""
    return frames.request(KEYS[api], version, 5, "c", build(api, **(dict(request.fields) | changed)))[4:]


APIS = {api: (api,) for api in harmless_requests.newest()}


@case_for_each(APIS, "apiversions.too-high.{name}", "SocketServer.processCompletedReceives (InvalidRequestException)")
async def version_too_high(run: CaseRun, api: str) -> None:
    """A version of {0} above the offered ones ends the connection."""
    newest_version(run, api)
    connection = await run.connect()
    highest = run.capabilities.versions[KEYS[api]][1]
    frame = struct.pack(">hhih", KEYS[api], highest + 1, 5, 1) + b"c\0\0\0\0"
    await connection.send_bytes(struct.pack(">i", len(frame)) + frame)
    true("connection", await connection.is_closed_by_peer(), "closed by the peer")


@case_for_each(APIS, "apiversions.truncated.{name}", "RequestContext.parseRequest (InvalidRequestException)")
async def truncated(run: CaseRun, api: str) -> None:
    """A {0} request whose frame ends within its body ends the connection, and no other."""
    version = newest_version(run, api)
    request = harmless_requests.newest()[api]
    frame = encoded(api, version, request)
    header = headers.decode_request_header(frame)[1]
    connection, other = await run.connect(), await run.connect()
    if len(frame) - header < 2:
        raise NotOffered(f"the body of {api} v{version} is a single byte")
    cut = frame[: header + (len(frame) - header) // 2]
    await connection.send_bytes(struct.pack(">i", len(cut)) + cut)
    true("connection", await connection.is_closed_by_peer(), "closed by the peer")
    equal("error on another connection", (await other.request("ApiVersions", 0)).error_code, ErrorCode.NONE)


def _null_frame(api: str, version: int, request: HarmlessRequest) -> bytes | None:
    """Return a frame with null in the first string or array that must not be null; None if there is none."""
    spec = registry.request_spec(KEYS[api])
    is_flexible = version in spec.flexible
    for each in spec.root.fields:
        is_sized = each.is_array or each.type == "string"
        if version in each.versions and is_sized and not each.is_nullable(version) and not each.is_tagged(version):
            empty, other = (encoded(api, version, request, **{each.attribute: value}) for value in _two(each))
            at = next(i for i, (a, b) in enumerate(zip(empty, other, strict=False)) if a != b)
            if is_flexible:
                return empty[:at] + b"\0" + empty[at + 1 :]
            width = 4 if each.is_array else 2
            return empty[: at + 1 - width] + b"\xff" * width + empty[at + 1 :]
    return None


def _two(spec: Any) -> tuple[Any, Any]:
    """Return the empty value of a field, and one of one element."""
    if not spec.is_array:
        return "", "x"
    if spec.struct is not None:
        return [], [{}]
    return [], [""] if spec.type == "string" else [0]


NULLABLE_FREE = {
    api: (api,)
    for api, each in harmless_requests.newest().items()
    if any(
        (spec.is_array or spec.type == "string") and not spec.is_nullable(each.last) and not spec.is_tagged(each.last)
        for spec in registry.request_spec(KEYS[api]).root.fields
        if each.last in spec.versions
    )
}


@case_for_each(NULLABLE_FREE, "apiversions.null.{name}", "the schema of the request (nullableVersions)")
async def null_field(run: CaseRun, api: str) -> None:
    """Null in a field of {0} that must not be null ends the connection."""
    version = newest_version(run, api)
    frame = _null_frame(api, version, harmless_requests.newest()[api])
    if frame is None:
        raise NotOffered(f"every field of {api} v{version} may be null")
    connection = await run.connect()
    await connection.send_bytes(struct.pack(">i", len(frame)) + frame)
    true("connection", await connection.is_closed_by_peer(), "closed by the peer")


# Headers and frames


@case_for_each(
    {"0": (0,), "largest": (2**31 - 1,), "negative": (-1,), "smallest": (-(2**31),)},
    "apiversions.header.correlation-id-{name}",
    HEADERS,
)
async def correlation_id(run: CaseRun, number: int) -> None:
    """The correlation id {0} is returned unchanged."""
    connection = await run.connect()
    frame = frames.request(API_VERSIONS, 0, number, "c", build("ApiVersions"))[4:]
    exchange = await connection.send_frame(API_VERSIONS, 0, frame)
    received = await connection.receive_frame(exchange)
    equal("correlation id", int.from_bytes(received[:4], "big", signed=True), number)


@case_for_each(
    {"null": (None,), "empty": ("",), "long": ("c" * 2000,), "not-ascii": ("grün",)},
    "apiversions.header.client-id-{name}",
    HEADERS,
)
async def client_id(run: CaseRun, name: str | None) -> None:
    """A request with such a client id is served ({name})."""
    connection = await run.connect()
    connection.client_id = name
    equal("ErrorCode", (await connection.request("ApiVersions", 0)).error_code, ErrorCode.NONE)
    response = await connection.request("Metadata", run.cluster.version("Metadata"), topics=[])
    true("brokers", len(response.brokers) > 0, "at least one", len(response.brokers))


@case("apiversions.header.unknown-tag", "KIP-482; RequestHeader.json v2")
async def unknown_header_tag(run: CaseRun) -> None:
    """An unknown tagged field in a request header is ignored."""
    connection = await run.connect()
    version = run.cluster.version("Metadata")
    header = headers.RequestHeader(KEYS["Metadata"], version, 9, "c", ((UNKNOWN_TAG, b"abc"),))
    body = encoded_body("Metadata", version, topics=[], allow_auto_topic_creation=False)
    exchange = await connection.send_frame(KEYS["Metadata"], version, headers.encode_request_header(header) + body)
    response = await connection.receive(exchange)
    true("brokers", len(response.brokers) > 0, "at least one", len(response.brokers))


def encoded_body(api: str, version: int, **values: Any) -> bytes:
    """Return the body of a request."""
    frame = frames.request(KEYS[api], version, 1, None, build(api, **values))[4:]
    return frame[headers.decode_request_header(frame)[1] :]


@case_for_each(
    {api: (api,) for api in ("Metadata", "ApiVersions", "FindCoordinator", "DescribeCluster", "ListGroups")},
    "apiversions.header.unknown-body-tag-{name}",
    "KIP-482",
)
async def unknown_body_tag(run: CaseRun, api: str) -> None:
    """An unknown tagged field in the body of {0} is ignored."""
    version = 3 if api == "ApiVersions" else newest_version(run, api)
    fields = CLIENT if api == "ApiVersions" else dict(harmless_requests.newest()[api].fields)
    message = build(api, **fields)
    message.unknown_tags = ((UNKNOWN_TAG, b"abc"),)
    connection = await run.connect()
    response = await connection.send_message(KEYS[api], version, message)
    true("response", response is not None, "decoded")


@case("apiversions.frames.pipelined", "KIP (protocol guide): requests of a connection are processed in order")
async def pipelined(run: CaseRun) -> None:
    """Responses to pipelined requests are sent in the order of the requests."""
    connection = await run.connect()
    version = run.cluster.version("Metadata")
    sent = []
    for number in range(10):
        if number % 2:
            sent.append(await connection.send(KEYS["Metadata"], version, build("Metadata", topics=[])))
        else:
            sent.append(await connection.send(API_VERSIONS, 0, build("ApiVersions")))
    for exchange in sent:
        await connection.receive(exchange)
    equal("responses", len([each for each in sent if each.response]), 10)


@case("apiversions.frames.behind-a-waiting-one", "SocketServer (one request of a connection at a time)")
async def behind_a_waiting_one(run: CaseRun) -> None:
    """A response is not sent before that of an earlier request that waits."""
    topic = await run.topic()
    connection = await run.connect(await run.node(topic.leaders[0]))
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    fetch = build("Fetch", max_wait_ms=800, min_bytes=1, topics=[{"topic": topic.name, "partitions": [partition]}])
    first = await connection.send(KEYS["Fetch"], run.cluster.version("Fetch"), fetch)
    second = await connection.send(API_VERSIONS, 0, build("ApiVersions"))
    equal("error of the Fetch", (await connection.receive(first)).error_code, ErrorCode.NONE)
    equal("error of ApiVersions", (await connection.receive(second)).error_code, ErrorCode.NONE)


@case("apiversions.frames.in-pieces", "NetworkReceive")
async def in_pieces(run: CaseRun) -> None:
    """A request that arrives byte by byte is served."""
    connection = await run.connect()
    data = frames.request(API_VERSIONS, 0, 1, "c", build("ApiVersions"))
    for at in range(len(data)):
        await connection.send_bytes(data[at : at + 1])
    exchange = run.trail.begin(API_VERSIONS, 0, data[4:])
    equal("ErrorCode", (await connection.receive(exchange)).error_code, ErrorCode.NONE)


@case_for_each(
    {"negative": (-1,), "smallest": (-(2**31),), "too-large": (2**31 - 1,)},
    "apiversions.frames.size-{name}",
    "NetworkReceive (InvalidReceiveException)",
)
async def frame_size(run: CaseRun, size: int) -> None:
    """A frame with the size {0} ends the connection."""
    connection = await run.connect()
    await connection.send_bytes(struct.pack(">i", size) + b"\0" * 8)
    true("connection", await connection.is_closed_by_peer(), "closed by the peer")


@case_for_each(
    {"unknown": (999,), "negative": (-5,)}, "apiversions.frames.key-{name}", "SocketServer.processCompletedReceives"
)
async def unknown_key(run: CaseRun, key: int) -> None:
    """A request with the API key {0} ends the connection."""
    connection = await run.connect()
    frame = struct.pack(">hhih", key, 0, 1, 1) + b"c"
    await connection.send_bytes(struct.pack(">i", len(frame)) + frame)
    true("connection", await connection.is_closed_by_peer(), "closed by the peer")


@case("apiversions.frames.header-cut-off", "RequestHeader.parse")
async def header_cut_off(run: CaseRun) -> None:
    """A frame that is too short for a header ends the connection."""
    connection = await run.connect()
    await connection.send_bytes(struct.pack(">ihh", 4, API_VERSIONS, 0))
    if not await connection.is_closed_by_peer():
        raise Mismatch("connection", "closed by the peer", "open")
