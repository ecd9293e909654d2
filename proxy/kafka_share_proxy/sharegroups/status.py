"""Share groups on the status page: lag, start offsets, locks, delayed and blocked records, dead letters."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from kafka_share_proxy.feature.status import (
    DETAIL_ROWS_MAX,
    GROUPS_MAX,
    ROWS_MAX,
    Alarm,
    Cell,
    Change,
    Detail,
    Link,
    Seconds,
    StatusSection,
    StatusTable,
    first,
)
from kafka_share_proxy.sharegroups import group_report
from kafka_share_proxy.sharegroups.admin_pages import PATH
from kafka_share_proxy.sharegroups.lag import LagSurvey, ShareLag
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.services import ShareServices

TITLE = "Share groups"
GROUP_COLUMNS = (
    *("Group", "Lag", "Members", "Acquired", "Delayed", "Blocked", "Dead letters waiting"),
    *("Oldest unsettled for", "State"),
)
PARTITION_COLUMNS = ("Partition", "Leader", "Start offset", "Lag", "Acquired", "Settled", "Oldest held by", "For")
LOCK_COLUMNS = ("Partition", "Offsets", "Held by", "Ends in", "Held for", "Delivery", "Renewals")
MEMBER_COLUMNS = ("Member", "Client", "Host", "Acquired", "Session ends in")
DELAYED_COLUMNS = ("Partition", "Offsets", "Delivery", "Due in")
BLOCKED_COLUMNS = ("Partition", "Hash of the key", "Behind offset", "Waiting")
PARTITIONS_MAX = 500
"""Maximum number of loaded share partitions of a group that is shown in detail. Its report is made in one step."""

Entry = Mapping[str, Any]


def of_brokers() -> Generator[None, None, StatusSection]:
    """Return the section where the brokers serve share groups."""
    yield
    return StatusSection(TITLE, notes=("The brokers serve share groups.",))


def section(services: ShareServices, lag: ShareLag) -> Generator[None, None, StatusSection]:
    """Return the share groups held here, those with the most lag first."""
    listed = yield from group_report.groups(services)
    survey = yield from lag.survey()
    groups: list[Entry] = sorted(listed["groups"], key=lambda entry: (-survey.by_group[entry["group"]], entry["group"]))
    rows, rows_left_out = first((_group_row(entry, survey) for entry in groups), ROWS_MAX)
    details: list[Detail] = []
    for entry in groups[:GROUPS_MAX]:
        yield
        detail = _detail(services, lag, entry["group"])
        if detail is not None:
            details.append(detail)
    return StatusSection(
        TITLE,
        notes=_notes(services, lag),
        tables=(StatusTable("Groups held by this proxy", GROUP_COLUMNS, rows, rows_left_out),),
        details=details,
        details_left_out=max(len(groups) - GROUPS_MAX, 0),
    )


def _notes(services: ShareServices, lag: ShareLag) -> list[str]:
    notes = []
    if services.fleet is not None and services.fleet.groups:
        notes.append(f"Other proxies of the fleet hold {len(services.fleet.groups)} groups.")
    if lag.ends.trouble:
        notes.append(f"Lag is incomplete or old: {lag.ends.trouble}")
    return notes


def _group_row(line: Entry, survey: LagSurvey) -> tuple[Cell, ...]:
    group_id, waiting = line["group"], line["dead_letters_waiting"]
    oldest = line["oldest_blocked_s"]
    return (
        Link(group_id, (PATH, group_id)),
        _lag_of(group_id, survey),
        line["members"],
        line["acquired"],
        line["delayed"],
        line["blocked"],
        Alarm(str(waiting)) if waiting else 0,
        None if oldest is None else Seconds(oldest),
        line["state"],
    )


def _lag_of(group_id: str, survey: LagSurvey) -> Cell:
    unknown = survey.unknown[group_id]
    if not unknown:
        return survey.by_group[group_id]
    return f"{survey.by_group[group_id]} and {unknown} partitions unknown" if group_id in survey.by_group else None


def _detail(services: ShareServices, lag: ShareLag, group_id: str) -> Detail | None:
    """Return one group. Share partitions at rest stay at rest: nothing of them is held, delayed or blocked."""
    loaded = services.coordinator.loaded_of(group_id)
    if len(loaded) > PARTITIONS_MAX:
        return Detail(group_id, (f"{len(loaded)} share partitions are too many for this page: see {PATH}/{group_id}.",))
    report = group_report.group(services, group_id, only_loaded=True)
    if report is None:
        return None
    shown = report["partitions"][:DETAIL_ROWS_MAX]
    rows = [_partition_row(entry, _lag_of_partition(services, lag, group_id, entry)) for entry in shown]
    keys = services.coordinator.keys_of(group_id)  # those at rest are last
    at_rest = keys[len(loaded) :][: DETAIL_ROWS_MAX - len(rows)]
    rows += [_resting_row(services, lag, key) for key in at_rest]
    tables = [
        StatusTable("Partitions", PARTITION_COLUMNS, rows, len(keys) - len(rows)),
        _table(
            *("Locks: who holds what, and until when", LOCK_COLUMNS, report["locks"], _lock_row),
            lambda entry: _release(group_id, entry["member"], 1),
        ),
        _table(
            *("Members", MEMBER_COLUMNS, report["members"], _member_row),
            lambda entry: _release(group_id, entry["member"], entry["acquired"]),
        ),
        _table("Delayed records", DELAYED_COLUMNS, report["delayed"], _delayed_row),
        _table("Keys with blocked records", BLOCKED_COLUMNS, report["blocked_keys"], _blocked_row),
    ]
    return Detail(group_id, _dead_letter_notes(report), [table for table in tables if table.rows])


def _resting_row(services: ShareServices, lag: ShareLag, key: ShareKey) -> tuple[Cell, ...]:
    topic, progress = services.topology.topic_by_id(key.topic_id), services.coordinator.progress(key)
    name = f"{key.topic_id.hex() if topic is None else topic.name}-{key.partition}"
    start_offset, settled = progress or (None, None)
    return name, None, start_offset, lag.of(key), 0, settled, None, None


def _lag_of_partition(services: ShareServices, lag: ShareLag, group_id: str, entry: Entry) -> int | None:
    topic = services.topology.topic(entry["topic"])
    return None if topic is None else lag.of(ShareKey(group_id, topic.topic_id, entry["partition"]))


def _table(
    title: str,
    columns: Sequence[str],
    entries: Sequence[Entry],
    row: Callable[[Entry], Sequence[Cell]],
    change: Callable[[Entry], Change | None] | None = None,
) -> StatusTable:
    shown, left_out = first(entries, DETAIL_ROWS_MAX)
    changes = [] if change is None else [change(entry) for entry in shown]
    return StatusTable(title, columns, [row(entry) for entry in shown], left_out, changes)


def _release(group_id: str, member_id: str, records: int) -> Change | None:
    return Change(f"release {member_id}", (PATH, group_id, "members", member_id, "release")) if records else None


def _dead_letter_notes(report: Entry) -> list[str]:
    letters = report["dead_letters"]
    if letters is None:
        return []
    notes = [f"Dead letters go to {letters['topic']}: {letters['written']} written since the start of this proxy."]
    if letters["not_written_because"]:
        notes.append(f"They cannot be written now: {letters['not_written_because']}")
    return notes


def _at(entry: Entry) -> str:
    return f"{entry['topic']}-{entry['partition']}"


def _offsets(entry: Entry) -> str:
    return str(entry["first"]) if entry["first"] == entry["last"] else f"{entry['first']}-{entry['last']}"


def _partition_row(entry: Entry, lag: int | None) -> tuple[Cell, ...]:
    blocked = entry["oldest_blocked_s"]
    leader = entry["leader"] if entry["leader"] >= 0 else None
    return (
        *(_at(entry), leader, entry["start_offset"], lag, entry["acquired"], entry["settled_behind"]),
        entry["oldest_held_by"],
        None if blocked is None else Seconds(blocked),
    )


def _lock_row(entry: Entry) -> tuple[Cell, ...]:
    ends = entry["ends_in_s"]
    return (
        *(_at(entry), _offsets(entry), entry["member"], None if ends is None else Seconds(ends)),
        *(Seconds(entry["held_s"]), entry["delivery_count"], entry["renewals"]),
    )


def _member_row(entry: Entry) -> tuple[Cell, ...]:
    session = Seconds(entry["session_ends_in_s"])
    return entry["member"], entry["client_id"], entry["client_host"], entry["acquired"], session


def _delayed_row(entry: Entry) -> tuple[Cell, ...]:
    return _at(entry), _offsets(entry), entry["delivery_count"], Seconds(entry["due_in_s"])


def _blocked_row(entry: Entry) -> tuple[Cell, ...]:
    return _at(entry), entry["key_hash"], entry["behind_offset"], entry["waiting"]
