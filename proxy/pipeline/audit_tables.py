"""Tables made of audit events (pipeline/README.md rules 29 to 33). Each is a query over the events of some days."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKETS = 4096
"""Of the hash space, in `load` events."""
UNKNOWN_BUCKET = -1
"""Load of a minute in which no key was looked at; so it stands in KEY_RANGE_LOAD."""

DELIVERIES = """
select day, `group`, topic, partition, first, last, last - first + 1 as n, attempt, member,
  timestamp_millis(t_acquire_ms) as t_acquire, ts_ms - t_acquire_ms as hold_ms, outcome, renews, renew_ms, by,
  proxy_id, seq
from events where kind = 'settle'
"""

MARKS = """
select day, ts_ms, `group`, topic, partition, member, first, last, t_acquire_ms, renews, renew_ms from (
  select *,
    row_number() over (partition by `group`, topic, partition, first, t_acquire_ms order by ts_ms desc) as latest
  from events where kind = 'renew' and start_offset between first and last
) where latest = 1
"""
"""The last one of each lock that was the oldest when it was renewed."""

BLOCKED = """
with heads as (
  select day, ts_ms, `group`, topic, partition, member, first, last, renews, renew_ms, false as is_held,
    lag(ts_ms) over (partition by `group`, topic, partition order by ts_ms, seq) as head_since_ms
  from events
  where kind = 'settle' and start_offset between first and last
), settled as (
  select m.`group`, m.topic, m.partition, m.t_acquire_ms, m.first
  from marks m join events s on s.kind = 'settle' and s.`group` = m.`group` and s.topic = m.topic
    and s.partition = m.partition and s.t_acquire_ms = m.t_acquire_ms and s.first <= m.first and s.last >= m.first
), held as (
  select m.* from marks m left anti join settled s on s.`group` = m.`group` and s.topic = m.topic
    and s.partition = m.partition and s.t_acquire_ms = m.t_acquire_ms and s.first = m.first
), since as (
  select m.`group`, m.topic, m.partition, m.ts_ms, max(h.ts_ms) as head_since_ms
  from held m join heads h on h.`group` = m.`group` and h.topic = m.topic and h.partition = m.partition
    and h.ts_ms <= m.ts_ms
  group by all
), both as (
  select * from heads
  union all
  select m.day, m.ts_ms, m.`group`, m.topic, m.partition, m.member, m.first, m.last, m.renews, m.renew_ms, true,
    s.head_since_ms
  from held m left join since s on s.`group` = m.`group` and s.topic = m.topic and s.partition = m.partition
    and s.ts_ms = m.ts_ms
)
select *, least(renew_ms, ts_ms - coalesce(head_since_ms, ts_ms - renew_ms)) as blocked_ms
from both where renew_ms > 0
"""
"""A range that was the oldest that is not settled, was so since the head before it was settled, and beyond the end of
its first lock by renewals alone. Marks are few and joined first: joins of all settles were the dearest step."""

RENEW_ABUSE = """
with seconds as (
  select *, explode(sequence((ts_ms - blocked_ms) div 1000, ts_ms div 1000)) as second from blocked
), settled as (
  select `group`, topic, partition, first, last, ts_ms, ts_ms div 1000 as second
  from events s left semi join seconds b on s.kind = 'settle' and s.`group` = b.`group` and s.topic = b.topic
    and s.partition = b.partition and s.ts_ms div 1000 = b.second
)
select b.day, b.`group`, b.topic, b.partition, b.member, b.first, b.last, b.renews, b.renew_ms, b.blocked_ms, b.is_held,
  b.ts_ms, coalesce(sum(s.last - greatest(s.first, b.last + 1) + 1), 0) as later_settled
from seconds b
left join settled s on s.`group` = b.`group` and s.topic = b.topic and s.partition = b.partition
  and s.second = b.second and s.last > b.last and s.ts_ms between b.ts_ms - b.blocked_ms and b.ts_ms
group by all
"""
"""Settled meanwhile is looked for second by second: a partition's whole day for each range would be too much."""

GROUP_MEMBER_HOUR = """
with held as (
  select day, date_trunc('HOUR', timestamp_millis(ts_ms)) as hour, `group`, member,
    cast(log2(greatest(1, ts_ms - t_acquire_ms)) as int) as hold_log2, sum(last - first + 1) as n,
    sum(if(outcome = 'accept', last - first + 1, 0)) as accepts, sum(if(attempt > 1, last - first + 1, 0)) as again,
    sum(if(outcome = 'lock_timeout', last - first + 1, 0)) as timeouts, sum(coalesce(renews, 0)) as renews,
    sum(coalesce(renew_ms, 0)) as renew_ms
  from events where kind = 'settle' group by all
), sums as (
  select day, hour, `group`, member, sum(n) as deliveries, sum(accepts) as accepts, sum(again) as redeliveries,
    sum(timeouts) as timeouts, sum(renews) as renews, sum(renew_ms) as renew_ms,
    map_from_entries(
      sort_array(collect_list(struct(hold_log2, n)) filter (where hold_log2 is not null))
    ) as hold_histogram
  from held group by all
), waits as (
  select day, date_trunc('HOUR', timestamp_millis(ts_ms)) as hour, `group`, member, sum(blocked_ms) as blocked_ms
  from blocked group by all
)
select sums.day, sums.hour, sums.`group`, sums.member, deliveries, accepts, redeliveries, timeouts, renews, renew_ms,
  redeliveries / deliveries as redelivery_rate, timeouts / deliveries as timeout_rate, hold_histogram,
  coalesce(blocked_ms, 0) as blocked_ms
from sums
left join waits w on w.day = sums.day and w.hour = sums.hour and w.`group` <=> sums.`group` and w.member <=> sums.member
"""

KEY_RANGE_LOAD = """
with loads as (
  select day, date_trunc('MINUTE', timestamp_millis(ts_ms)) as minute, topic, partition, sum(rows) as rows,
    sum(bytes) as bytes, sum(coalesce(hold_ms, 0)) as hold_ms, sum(sampled) as sampled,
    sum(sampled_bytes) as sampled_bytes, collect_list(buckets) as samples
  from events where kind = 'load' group by all
), counted as (
  select day, minute, topic, partition, rows, bytes, hold_ms, sampled, sampled_bytes, cast(bucket as int) as bucket,
    sum(counts[0]) as records, sum(counts[1]) as record_bytes
  from loads
  lateral view explode(if(sampled > 0, samples, array(map('-1', array(0L, 0L))))) as sample
  lateral view explode(sample) as bucket, counts
  where sampled >= 0 group by all
)
select day, minute, topic, bucket,
  sum(if(sampled > 0, rows * records / sampled, rows)) as rows,
  sum(if(sampled > 0, if(sampled_bytes > 0, bytes * record_bytes / sampled_bytes, 0), bytes)) as bytes,
  sum(if(sampled > 0, hold_ms * records / sampled, hold_ms)) as hold_ms
from counted group by all
"""

HOT_KEYS = """
with listed as (
  select day, date_trunc('MINUTE', timestamp_millis(ts_ms)) as minute, topic, partition, sampled, error, keys
  from events where kind = 'hot_keys'
), samples as (
  select day, minute, topic, partition, sum(sampled) as sampled, sum(error) as error from listed group by all
), loads as (
  select day, date_trunc('MINUTE', timestamp_millis(ts_ms)) as minute, topic, partition, sum(rows) as rows
  from events where kind = 'load' group by all
), weighed as (
  select s.*, l.rows, l.rows / s.sampled as weight
  from samples s join loads l on l.day = s.day and l.minute = s.minute and l.topic <=> s.topic
    and l.partition <=> s.partition
  where s.sampled > 0 and l.rows > 0
), totals as (
  select day, topic, sum(rows) as rows, sum(sampled) as sampled, sum(error * weight) as error from weighed group by all
), counts as (
  select day, minute, topic, partition, entry[0] as hash, sum(entry[1]) as records
  from listed lateral view explode(keys) as entry group by all
), estimates as (
  select c.day, c.topic, c.hash, sum(c.records * w.weight) as estimate
  from counts c join weighed w on w.day = c.day and w.minute = c.minute and w.topic <=> c.topic
    and w.partition <=> c.partition
  group by all
)
select day, topic, hash, share, estimate, error, sampled, rows from (
  select e.day, e.topic, e.hash, e.estimate / t.rows as share, e.estimate, t.error, t.sampled, t.rows,
    row_number() over (partition by e.day, e.topic order by e.estimate desc, e.hash) as rank
  from estimates e join totals t on t.day = e.day and t.topic <=> e.topic
) where rank <= 100
"""
"""The heaviest hundred of each topic and day. A sampled record stands for as many as its partition had in that minute
for each that was sampled: a busy partition is looked at no more often than a quiet one."""

NUMBERS = """
select proxy_id, min(first_seq) as first_seq, max(last_seq) as last_seq, sum(events) as events,
  sum(bit_count(numbers)) as different
from (
  select proxy_id, seq div 64, min(seq) as first_seq, max(seq) as last_seq, count(1) as events,
    bit_or(shiftleft(1L, cast(seq % 64 as int))) as numbers
  from events group by proxy_id, seq div 64
)
group by proxy_id
"""
"""How many events there are of each proxy, and how many numbers: more events stand there twice. Numbers begin at 1, and
what is missing below the highest was lost."""


def tables(events: DataFrame, blocked: DataFrame) -> Mapping[str, Callable[[], DataFrame]]:
    """Table -> what makes it.

    Args:
        events: of whole days, each event once.
        blocked: as of `blocked`, in files: several tables need it, and their plans depend on its size.
    """
    session = events.sparkSession

    def made(query: str) -> Callable[[], DataFrame]:
        def make() -> DataFrame:
            events.createOrReplaceTempView("events")
            blocked.createOrReplaceTempView("blocked")
            return session.sql(query)

        return make

    return {
        "deliveries": made(DELIVERIES),
        "group_member_hour": made(GROUP_MEMBER_HOUR),
        "renew_abuse": made(RENEW_ABUSE),
        "key_range_load": made(KEY_RANGE_LOAD),
        "hot_keys": made(HOT_KEYS),
    }


def marks(events: DataFrame) -> DataFrame:
    """See MARKS."""
    events.createOrReplaceTempView("events")
    return events.sparkSession.sql(MARKS)


def blocked(events: DataFrame, marks: DataFrame) -> DataFrame:
    """The ranges that held a group up by renewals."""
    events.createOrReplaceTempView("events")
    marks.createOrReplaceTempView("marks")
    return events.sparkSession.sql(BLOCKED)


def numbers(events: DataFrame) -> DataFrame:
    """See NUMBERS."""
    events.createOrReplaceTempView("events")
    return events.sparkSession.sql(NUMBERS)
