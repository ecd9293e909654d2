"""The settings, and what is right by itself for each. `config_loading` reads them."""

from __future__ import annotations

from functools import cached_property
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from kafka_share_proxy.app.settings import limit_settings
from kafka_share_proxy.app.settings.available_cpus import available_cpus
from kafka_share_proxy.app.settings.hostports import (
    PORT_MAX,
    parse_address,
    parse_addresses,
    parse_networks,
    parse_nodes,
)
from kafka_share_proxy.commits.settings import Commits
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.feature.settings import Seconds, Section
from kafka_share_proxy.forwarding.dispatch import denied_apis
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.broker_addresses import BrokerAddresses
from kafka_share_proxy.sharegroups.settings import ShareGroups
from kafka_share_proxy.views.settings import Views
from kafka_share_proxy.wire.values import Address

HostPort = Annotated[Address, PlainValidator(parse_address), PlainSerializer(str)]
HostPorts = Annotated[
    tuple[Address, ...],
    PlainValidator(parse_addresses),
    PlainSerializer(lambda addresses: [str(address) for address in addresses]),
]
Nodes = Annotated[
    dict[int, Address],
    PlainValidator(parse_nodes),
    PlainSerializer(lambda nodes: {node_id: str(address) for node_id, address in nodes.items()}),
]

Networks = Annotated[
    tuple[IPv4Network | IPv6Network, ...],
    PlainValidator(parse_networks),
    PlainSerializer(lambda networks: [str(network) for network in networks]),
]


WORKERS_MAX = 64


class UpstreamTls(Section):
    """TLS towards the brokers, for every upstream connection."""

    enabled: bool | None = None
    """Unset: on if any other key of this section is set."""
    ca_file: str | None = None
    """Authorities that may sign the brokers' certificates (PEM). Unset: the system's list."""
    cert_file: str | None = None
    """The proxy's own certificate chain (PEM). Brokers see it for every client."""
    key_file: str | None = None
    """Key of `cert_file` (PEM)."""
    server_name: str | None = None
    """Name to request and to verify. Unset: the host that is dialled."""
    verify: bool = True
    """Verify the brokers' certificates."""

    @property
    def on(self) -> bool:
        """True if the brokers are dialled with TLS."""
        if self.enabled is not None:
            return self.enabled
        return bool(self.ca_file or self.cert_file or self.server_name or not self.verify)


class UpstreamSasl(Section):
    """The proxy's own identity, for its own requests only; clients keep theirs."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """Unset: the proxy has no identity."""
    username: str | None = None
    """Principal of the proxy at the brokers."""
    password: SecretStr | None = None
    """Here or in `password_file`."""
    password_file: str | None = None
    """File with the password and nothing else. Line ends after it are removed."""

    @property
    def on(self) -> bool:
        """True if the proxy has its own identity."""
        return self.mechanism is not None

    def secret(self) -> str:
        """Return the password, read again if it is in a file."""
        if self.password is not None:
            return self.password.get_secret_value()
        return Path(self.password_file).read_text("utf-8").rstrip("\r\n") if self.password_file else ""


class Upstream(Section):
    """The cluster that the proxy serves."""

    bootstrap: HostPorts = ()
    """Needed: HOST:PORT of some brokers. All of them are tried."""
    tls: UpstreamTls = UpstreamTls()
    sasl: UpstreamSasl = UpstreamSasl()
    nodes: Nodes = Field(default_factory=dict)
    """Brokers by id, HOST:PORT. Dialled there instead of at what they advertise, and known without an identity."""
    metadata_interval_s: Seconds = 30.0
    """Seconds between two queries of the cluster's brokers."""


class ClientTls(Section):
    """TLS towards the clients: on when cert_file and key_file are set."""

    cert_file: str | None = None
    """The proxy's certificate chain for clients (PEM)."""
    key_file: str | None = None
    """Key of `cert_file` (PEM)."""
    client_ca_file: str | None = None
    """Clients must show a certificate signed by one of these authorities (PEM). Brokers never see it."""

    @property
    def on(self) -> bool:
        """True if clients are served with TLS."""
        return self.cert_file is not None


class ProxyProtocol(Section):
    """Load balancers that name their client in a PROXY protocol header (version 2) on each connection, by listener."""

    clients: Networks = ()
    """Addresses or networks of those before the listeners for Kafka clients. All others connect without the header."""
    admin: Networks = ()
    """Addresses or networks of those before the admin listener."""


class AuditSettings(Section):
    """What happened, as JSON lines; off unless a file or a topic is named."""

    file: str | None = None
    """File that is written. FILE.1 is the one before it."""
    file_bytes: Annotated[int, Field(ge=4096, le=1 << 40)] = 64 << 20
    """A file of this size is followed by a new one."""
    files_kept: Annotated[int, Field(ge=1, le=1000)] = 8
    """Older files that are kept in addition to the current one."""
    topic: str | None = None
    """Topic of the cluster that exists. It is written under the proxy's own identity."""
    proxy_id: str | None = None
    """Name of this proxy in every event, with a part that is new at each start. Unset: where clients bootstrap."""
    queue_events: Annotated[int, Field(ge=100, le=10_000_000)] = 100_000
    """Events that may wait to be written. Further ones are dropped, counted, and leave a gap in seq."""
    load_interval_s: Seconds = 60.0
    """Seconds between two reports of load, hot keys and renewed locks that are still held."""
    key_samples_per_s: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)] = 10.0
    """Budget of sampled keys, 1,024 a second for each. 0: none, and the load has no key ranges."""
    key_bytes: Annotated[int, Field(ge=0, le=256)] = 64
    """Bytes of a hot key that are written with its hash. 0: only the hash."""

    @property
    def on(self) -> bool:
        """True if events are written."""
        return self.file is not None or self.topic is not None


class PeerTls(Section):
    """TLS between the proxies of a fleet; on when all three files are given. Both sides show and verify certificates.

    The certificate is used when dialling and when dialled: one with an extended key usage must name both.
    """

    cert_file: str | None = None
    """This proxy's certificate chain (PEM), for the host that others dial, or for `server_name`."""
    key_file: str | None = None
    """Key of `cert_file` (PEM)."""
    ca_file: str | None = None
    """The only authorities that may sign the certificates of the fleet (PEM)."""
    server_name: str | None = None
    """Name in the certificates of all proxies. Unset: the host that is dialled."""

    @property
    def is_set(self) -> bool:
        """True if any of them is set; then all three files are needed."""
        return any((self.cert_file, self.key_file, self.ca_file, self.server_name))


class PeerLinks(Section):
    """How the proxies of a fleet reach each other, and how they know each other."""

    listen: HostPort | None = None
    """HOST:PORT at which this proxy accepts other proxies."""
    advertise: HostPort | None = None
    """HOST:PORT that other proxies dial. Unset: `listen`."""
    secret: SecretStr | None = None
    """The same at every proxy of the fleet, 16 characters or more."""
    secret_file: str | None = None
    """File with the secret and nothing else. Line ends after it are removed."""
    insecure: bool = False
    """Allow a fleet without a secret: every host that reaches the address may serve share groups."""
    tls: PeerTls = PeerTls()
    """The same at every proxy of the fleet: all with it, or all without."""

    def key(self) -> bytes | None:
        """Return the secret, or None if there is none."""
        if self.secret is not None:
            return self.secret.get_secret_value().encode()
        return Path(self.secret_file).read_bytes().rstrip(b"\r\n") if self.secret_file else None


def _workers(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Return one mistake for all values, because that of a union names each of its members as a setting."""
    try:
        return validate(value)
    except ValidationError:
        raise ValueError(f"write auto, or a whole number from 1 to {WORKERS_MAX}") from None


def _known_apis(names: list[str]) -> list[str]:
    denied_apis.keys_of(names, read_only=False)
    return names


class Apis(Section):
    """APIs that no client may use: left out of ApiVersions, and refused like a missing right."""

    deny: Annotated[list[str], AfterValidator(_known_apis)] = Field(default_factory=list)
    """Names of APIs, as in Kafka's protocol guide (CreateTopics). ApiVersions, Metadata and SASL cannot be denied."""
    read_only: bool = False
    """Deny everything that changes something, except what consumers need: groups, commits, acknowledgements."""

    @cached_property
    def denied(self) -> frozenset[int]:
        """Keys of the denied APIs."""
        return denied_apis.keys_of(self.deny, read_only=self.read_only)


class Cluster(Section):
    """How several proxies share the work."""

    mode: Literal["single", "fleet"] = "single"
    """single: one proxy serves share groups, and a second one refuses them until the first is gone. fleet: all proxies
    serve share groups, and each owns a part of them."""
    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Name of this proxy among the proxies. One that starts with the name of a running proxy replaces it immediately,
    one with another name waits until it has ended. Unset: the address for clients."""
    peer: PeerLinks = PeerLinks()
    session_timeout_s: Annotated[float, Field(ge=1, le=300, allow_inf_nan=False)] = 6.0
    """Seconds that a vanished proxy keeps the others waiting. Brokers allow 6 s or more by default."""


class TracingSettings(Section):
    """Spans of OpenTelemetry for requests that are served here. Needs `kafka-share-proxy[tracing]`."""

    export: Literal["none", "otlp"] = "none"
    """otlp: over HTTP, to where the environment variables OTEL_EXPORTER_OTLP_* say."""
    sample_ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 1.0
    """Share of requests that get spans. Each of these costs 0.1 ms of CPU."""


class TraceSettings(Section):
    """Decoded requests and responses of one client, for `kafka-share-proxy trace`; no contents of records."""

    client: str | None = None
    """Client id or address that is traced from the start on. Unset: none, until the admin listener begins a trace."""
    seconds: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 60.0
    """Seconds after which a trace ends, unless it was begun for another time."""
    seconds_max: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 3600.0
    """Maximum seconds for which the admin listener begins a trace."""
    lines: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Requests and responses after which a trace ends, in each worker."""
    bytes: Annotated[int, Field(ge=4096, le=1 << 30)] = 16 << 20
    """Bytes of lines after which a trace ends, in each worker. They stay in memory until the next trace."""


class Config(Section):
    """All settings of one proxy."""

    upstream: Upstream = Upstream()
    listen: HostPort | None = None
    """Needed: HOST:PORT that clients bootstrap from."""
    advertise: str | None = None
    """Host that clients receive and dial. Unset: the host of `listen`."""
    exposure: Literal["ports", "sni"] = "ports"
    """ports: each broker has its own port. sni: all have the port of `listen`, and the name that a client requests by
    TLS selects the broker."""
    first_port: int | None = Field(None, ge=1, le=PORT_MAX)
    """ports: the broker with node id N is served on this port + N. Unset: the port of `listen` + 1."""
    broker_names: str | None = None
    """sni: name of each broker with {id} for its node id, for example broker-{id}.kafka.example. Clients bootstrap from
    the name in `advertise`."""
    advertise_port: int | None = Field(None, ge=1, le=PORT_MAX)
    """sni: port that clients receive and dial, of a load balancer for example. Unset: the port of `listen`."""
    client_tls: ClientTls = ClientTls()
    workers: Annotated[Literal["auto"] | Annotated[int, Field(ge=1, le=WORKERS_MAX)], WrapValidator(_workers)] = 1
    """Processes that serve clients on the same ports. auto: one for each CPU that this machine or container has."""
    proxy_protocol: ProxyProtocol = ProxyProtocol()
    admin: HostPort | None = None
    """HOST:PORT of /livez, /readyz, /metrics and /groups. Unset: they are not served."""
    admin_hosts: tuple[str, ...] = ()
    """Further names of the admin listener (Host header). Requests by another name are refused. Addresses, localhost,
    this machine's name, `advertise` and the host of `admin` are always accepted."""
    admin_changes: Literal["local", "any", "never"] = "local"
    """Clients that may release locks through the admin listener: those on this machine, any, or none."""
    log_format: Literal["console", "json"] = "console"
    """console for people, json for machines."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    unknown_apis: Literal["hide", "pass"] = "hide"
    """APIs newer than this proxy: left out of ApiVersions and refused, or offered and forwarded."""
    apis: Apis = Apis()
    share_groups: ShareGroups = ShareGroups()
    views: Views = Views()
    commits: Commits = Commits()
    cluster: Cluster = Cluster()
    audit: AuditSettings = AuditSettings()
    tracing: TracingSettings = TracingSettings()
    trace: TraceSettings = TraceSettings()
    limits: dict[str, Any] = Field(default_factory=dict)
    """The proxy's own limits."""
    drain_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = 30.0
    """Seconds that requests in flight may take after SIGTERM."""
    vanished_broker_grace_s: Seconds = 300.0
    """Seconds that a broker keeps its listener after it has left the cluster."""
    rights_cache_s: Seconds = 15.0
    """Seconds that a verdict on a client's rights holds, on its own connection."""

    @property
    def bound(self) -> Address:
        """Value of `listen`, which a checked config has."""
        if self.listen is None:
            raise ConfigError("listen: missing")
        return self.listen

    @property
    def peer_address(self) -> Address | None:
        """The address at which other proxies of the fleet reach this one; None without a fleet."""
        peer = self.cluster.peer
        return (peer.advertise or peer.listen) if self.cluster.mode == "fleet" else None

    @property
    def worker_count(self) -> int:
        """Number of processes that serve clients."""
        return min(available_cpus(), WORKERS_MAX) if self.workers == "auto" else self.workers

    @property
    def is_shared(self) -> bool:
        """True if several processes share the share groups, on one machine or on several."""
        return self.cluster.mode == "fleet" or self.worker_count > 1

    @property
    def advertised_host(self) -> str:
        """The host that clients receive and dial."""
        return self.advertise or self.bound.host

    @property
    def bootstrap_address(self) -> Address:
        """The address that clients bootstrap from."""
        return Address(self.advertised_host, self.advertise_port or self.bound.port)

    @property
    def broker_addresses(self) -> BrokerAddresses:
        """The addresses of the brokers for clients."""
        if self.exposure == "sni":
            return BrokerAddresses(self.broker_names or "", self.bootstrap_address.port, is_one_port=True)
        first_port = self.bound.port + 1 if self.first_port is None else self.first_port
        return BrokerAddresses(self.advertised_host, first_port)

    def with_connections(self, connections: int) -> Config:
        """Return these settings with another `limits.connections`."""
        other = self.model_copy(update={"limits": self.limits | {"connections": connections}})
        other.__dict__.pop("named_limits", None)  # computed from what it was before, and copied with the rest
        return other

    @cached_property
    def named_limits(self) -> Limits:
        """Checked `limits` with their defaults. Raises ConfigError, which names every mistake."""
        return limit_settings.parse(self.limits)
