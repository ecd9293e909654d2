"""Settings of one share consumer, checked before anything is sent. Names follow Kafka's, units stand last."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.consumer.client_options import ClientOptions, common_mistakes
from proxy.consumer.options import ConfigurationError

ACKNOWLEDGEMENT_MODES = ("implicit", "explicit")
ACQUIRE_MODES = ("batch_optimized", "record_limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerOptions(ClientOptions):
    """Everything that is decided when a share consumer is opened."""

    acknowledgement_mode: str = "implicit"
    """share.acknowledgement.mode: `implicit`, where a poll accepts what the poll before returned, or `explicit`."""
    acquire_mode: str = "batch_optimized"
    """share.acquire.mode (KIP-1206): whole batches, or with `record_limit` never more than max_poll_records."""
    max_poll_records: int = 500
    """Of one fetch; a poll in the mode `batch_optimized` may return some more."""
    held_records_max: int = 10_000
    """Records that were returned and not acknowledged, at which no more are fetched."""

    @property
    def is_explicit(self) -> bool:
        """Whether the application says of each record what became of it."""
        return self.acknowledgement_mode == "explicit"

    @property
    def limits_records(self) -> bool:
        """Whether max_poll_records is strict."""
        return self.acquire_mode == "record_limit"

    def __post_init__(self) -> None:
        """Raises ConfigurationError, with every mistake that was found."""
        if mistakes := _mistakes(self):
            raise ConfigurationError("; ".join(mistakes))


def _mistakes(options: ShareConsumerOptions) -> list[str]:
    found = []
    if not options.group_id:
        found.append("a share consumer needs a group: say group=")
    if options.acknowledgement_mode not in ACKNOWLEDGEMENT_MODES:
        listed = ", ".join(ACKNOWLEDGEMENT_MODES)
        found.append(f"share.acknowledgement.mode {options.acknowledgement_mode!r}: one of {listed}")
    if options.acquire_mode not in ACQUIRE_MODES:
        found.append(f"share.acquire.mode {options.acquire_mode!r}: one of {', '.join(ACQUIRE_MODES)}")
    if options.max_poll_records > options.held_records_max:
        found.append("max.poll.records must not be above held_records_max")
    above_0 = {"max.poll.records": options.max_poll_records, "fetch.max.wait.ms": options.fetch_max_wait_s}
    return [*found, *common_mistakes(options, above_0)]
