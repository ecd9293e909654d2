"""Settings of one share consumer, checked before any request is sent. Names follow Kafka's, with the unit at the
end.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_share_proxy.consumer.client_options import ClientOptions, common_mistakes
from kafka_share_proxy.consumer.option_checks import ABOVE_0, literal_values, option, types_hold
from kafka_share_proxy.consumer.option_types import AcknowledgementMode, AcquireMode
from kafka_share_proxy.consumer.options import ConfigurationError

ACKNOWLEDGEMENT_MODES = literal_values(AcknowledgementMode)
ACQUIRE_MODES = literal_values(AcquireMode)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerOptions(ClientOptions):
    """Settings of a share consumer, fixed when it is opened."""

    acknowledgement_mode: AcknowledgementMode = "implicit"
    """share.acknowledgement.mode: `implicit`, where a poll accepts what the poll before returned, or `explicit`."""
    acquire_mode: AcquireMode = "batch_optimized"
    """share.acquire.mode (KIP-1206): whole batches, or with `record_limit` never more than max_poll_records."""
    max_poll_records: int = option(500, "max.poll.records", ABOVE_0)
    """Maximum number of records of one fetch. A poll with `batch_optimized` may return more."""
    held_records_max: int = option(10_000, "held_records_max", ABOVE_0)
    """Number of unacknowledged records at which fetching stops."""

    @property
    def is_explicit(self) -> bool:
        return self.acknowledgement_mode == "explicit"

    @property
    def limits_records(self) -> bool:
        return self.acquire_mode == "record_limit"

    def __post_init__(self) -> None:
        """Raises ConfigurationError with every mistake."""
        if mistakes := _mistakes(self):
            raise ConfigurationError("; ".join(mistakes))


def _mistakes(options: ShareConsumerOptions) -> list[str]:
    problems = common_mistakes(options)
    if not options.group_id:
        problems.append("a share consumer needs a group: say group=")
    if options.acknowledgement_mode not in ACKNOWLEDGEMENT_MODES:
        listed = ", ".join(ACKNOWLEDGEMENT_MODES)
        problems.append(f"acknowledgement_mode={options.acknowledgement_mode!r}: one of {listed}")
    if options.acquire_mode not in ACQUIRE_MODES:
        problems.append(f"acquire_mode={options.acquire_mode!r}: one of {', '.join(ACQUIRE_MODES)}")
    if not types_hold(options):
        return problems
    if options.max_poll_records > options.held_records_max:
        problems.append(
            f"max_poll_records={options.max_poll_records}: must not be above held_records_max "
            f"({options.held_records_max})"
        )
    if options.fetch_max_wait_s <= 0:
        problems.append(f"fetch_max_wait_s={options.fetch_max_wait_s:g}: fetch.max.wait.ms must be above 0")
    return problems
