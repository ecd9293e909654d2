"""SQL of the tables made from audit events, over the events of some days (pipeline/README.md rules 29 to 33)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKETS = 4096
UNKNOWN_BUCKET = -1
"""Bucket in KEY_RANGE_LOAD for the load of a minute without sampled keys."""

DELIVERIES = """
select day, `group`, topic, partition, first, last, last - first + 1 as n, attempt, member,
  timestamp_millis(t_acquire_ms) as t_acquire, ts_ms - t_acquire_ms as hold_ms, outcome, renews, renew_ms, by,
  proxy_id, seq
from events where kind = 'settle'
"""

LAST_RENEWALS = """
select day, ts_ms, `group`, topic, partition, member, first, last, t_acquire_ms, renews, renew_ms from (
  select *,
    row_number() over (partition by `group`, topic, partition, first, t_acquire_ms order by ts_ms desc) as latest
  from events where kind = 'renew' and start_offset between first and last
) where latest = 1
"""
"""The last `renew` event of each lock that held the oldest unsettled offset when it was renewed."""

BLOCKED = """
with heads as (
  select day, ts_ms, `group`, topic, partition, member, first, last, renews, renew_ms, false as is_held,
    lag(ts_ms) over (partition by `group`, topic, partition order by ts_ms, seq) as head_since_ms
  from events
  where kind = 'settle' and start_offset between first and last
), settled as (
  select m.`group`, m.topic, m.partition, m.t_acquire_ms, m.first
  from renewals m join events s on s.kind = 'settle' and s.`group` = m.`group` and s.topic = m.topic
    and s.partition = m.partition and s.t_acquire_ms = m.t_acquire_ms and s.first <= m.first and s.last >= m.first
), held as (
  select m.* from renewals m left anti join settled s on s.`group` = m.`group` and s.topic = m.topic
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
"""Ranges that blocked their group. `renewals` are few and joined first, because joins of all settles were the most
expensive step.
"""

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
"""Offsets settled meanwhile are joined second by second: joining a partition's whole day with each range would cost too
much."""

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

LOOKS_MIN = 4
"""Minimum number of sampling looks per minute. Partitions with fewer are estimated together, because their ratios are
biased."""

STRATA = f"""
loads as (
  select day, date_trunc('MINUTE', timestamp_millis(ts_ms)) as minute, topic, partition, rows, bytes,
    coalesce(hold_ms, 0) as hold_ms, sampled, coalesce(sampled_bytes, 0) as sampled_bytes,
    coalesce(looks, sampled) as looks, coalesce(sample_size, sampled) as sample_size,
    if(sampled > 0, greatest(coalesce(effective_size, sampled), 1), 0) as effective_size, buckets
  from events where kind = 'load'
), places as (
  select day, minute, topic, partition, if(sum(looks) >= {LOOKS_MIN}, partition, -1) as stratum
  from loads group by all
), strata as (
  select l.*, p.stratum from loads l join places p
    on p.day = l.day and p.minute = l.minute and p.topic <=> l.topic and p.partition <=> l.partition
), totals as (
  select day, minute, topic, stratum, sum(rows) as rows, sum(bytes) as bytes, sum(hold_ms) as hold_ms,
    sum(sampled) as sampled, sum(sampled_bytes) as sampled_bytes, sum(sample_size) as sample_size,
    sum(if(sampled > 0, sampled * sampled / effective_size, 0)) as squares
  from strata group by all
)
"""  # noqa: S608 - of constants
"""Strata, whose load is estimated together: a partition in a minute, or all partitions of a topic with few looks.
`squares` is the variance of a share p of `sampled`, divided by p (1 - p)."""

KEY_RANGE_LOAD = f"""
with {STRATA}, counted as (
  select day, minute, topic, stratum, cast(bucket as int) as bucket, sum(counts[0]) as records,
    sum(counts[1]) as record_bytes, sum(counts[0] * sample_size / sampled) as keys,
    sum(counts[0] * sampled / effective_size) as squares
  from (select * from strata where sampled > 0) lateral view explode(buckets) as bucket, counts group by all
)
select t.day, t.minute, t.topic, coalesce(c.bucket, {UNKNOWN_BUCKET}) as bucket,
  sum(if(c.bucket is null, t.rows, t.rows * c.records / t.sampled)) as rows,
  sum(if(c.bucket is null, t.bytes, if(t.sampled_bytes > 0, t.bytes * c.record_bytes / t.sampled_bytes, 0))) as bytes,
  sum(if(c.bucket is null, t.hold_ms, t.hold_ms * c.records / t.sampled)) as hold_ms,
  sum(coalesce(c.keys, 0)) as sampled,
  sum(coalesce(c.squares * pow(t.rows / t.sampled, 2), 0)) as variance
from totals t left join counted c
  on c.day = t.day and c.minute = t.minute and c.topic <=> t.topic and c.stratum <=> t.stratum
group by all
"""  # noqa: S608 - of constants
"""Load by bucket. `variance` is the Poisson variance of `rows`, which adds up over buckets, minutes and days and is
never too low for a range of several buckets.
"""

HOT_KEYS = f"""
with {STRATA}, listed as (
  select h.day, date_trunc('MINUTE', timestamp_millis(h.ts_ms)) as minute, h.topic, h.partition, p.stratum, h.sampled,
    coalesce(h.sample_size, h.sampled) as sample_size, h.error, h.keys, h.key_texts
  from events h join places p on h.kind = 'hot_keys' and p.day = h.day
    and p.minute = date_trunc('MINUTE', timestamp_millis(h.ts_ms)) and p.topic <=> h.topic
    and p.partition <=> h.partition
), samples as (
  select day, minute, topic, stratum, sum(sampled) as sampled, sum(sample_size) as sample_size, sum(error) as error
  from listed group by all
), weighed as (
  select s.*, t.rows, t.rows / s.sampled as weight, t.squares / t.sampled * t.sample_size / s.sample_size as rows_each
  from samples s join totals t on t.day = s.day and t.minute = s.minute and t.topic <=> s.topic
    and t.stratum <=> s.stratum
  where s.sampled > 0 and t.sampled > 0 and t.rows > 0
), sums as (
  select day, topic, sum(rows) as rows, sum(sample_size) as sampled, sum(error * weight) as error
  from weighed group by all
), counts as (
  select day, minute, topic, stratum, entry[0] as hash, sum(entry[1]) as records,
    max(key_texts[cast(entry[0] as string)]) as key
  from listed lateral view explode(keys) as entry group by all
), estimates as (
  select c.day, c.topic, c.hash, max(c.key) as key, sum(c.records * w.weight) as estimate,
    sum(c.records * w.rows_each * pow(w.weight, 2)) as variance
  from counts c join weighed w on w.day = c.day and w.minute = c.minute and w.topic <=> c.topic
    and w.stratum <=> c.stratum
  group by all
), shares as (
  select e.*, s.error, s.sampled, s.rows, e.estimate / s.rows as share,
    if(e.variance > 0, e.estimate * s.rows / e.variance, s.sampled) as size,
    row_number() over (partition by e.day, e.topic order by e.estimate desc, e.hash) as rank
  from estimates e join sums s on s.day = e.day and s.topic <=> e.topic
)
select day, topic, hash, key, share,
  greatest(0D, (share + z * z / 2 / size - z * sqrt(share * (1 - least(share, 1)) / size + z * z / 4 / size / size))
    / (1 + z * z / size)) as share_low,
  least(1D, error / rows
    + (share + z * z / 2 / size + z * sqrt(share * (1 - least(share, 1)) / size + z * z / 4 / size / size))
    / (1 + z * z / size)) as share_high,
  estimate, error, sampled, rows
from (select *, 1.96D as z from shares) where rank <= 100
"""  # noqa: S608 - of constants
"""The heaviest hundred keys of each topic and day, with the 95 % interval of their share (Wilson, 1927, with the
effective sample size). Records that the proxies' summaries may lack are added to its upper end."""

SEQUENCE_NUMBERS = """
select proxy_id, min(first_seq) as first_seq, max(last_seq) as last_seq, sum(events) as events,
  sum(bit_count(numbers)) as different
from (
  select proxy_id, seq div 64, min(seq) as first_seq, max(seq) as last_seq, count(1) as events,
    bit_or(shiftleft(1L, cast(seq % 64 as int))) as numbers
  from events group by proxy_id, seq div 64
)
group by proxy_id
"""
"""Sequence numbers of each proxy. More events than numbers mean duplicates. Numbers begin at 1, and a number that is
missing below the highest is a lost event.
"""


def tables(events: DataFrame, blocked: DataFrame) -> Mapping[str, Callable[[], DataFrame]]:
    """Return functions that make the tables, by name. `blocked` is read several times, so it is stored in files."""
    session = events.sparkSession

    def make_query(query: str) -> Callable[[], DataFrame]:
        def make() -> DataFrame:
            events.createOrReplaceTempView("events")
            blocked.createOrReplaceTempView("blocked")
            return session.sql(query)

        return make

    return {
        "deliveries": make_query(DELIVERIES),
        "group_member_hour": make_query(GROUP_MEMBER_HOUR),
        "renew_abuse": make_query(RENEW_ABUSE),
        "key_range_load": make_query(KEY_RANGE_LOAD),
        "hot_keys": make_query(HOT_KEYS),
    }


def last_renewals(events: DataFrame) -> DataFrame:
    """Return the last renewals of locks that held their group up (LAST_RENEWALS)."""
    events.createOrReplaceTempView("events")
    return events.sparkSession.sql(LAST_RENEWALS)


def blocked(events: DataFrame, renewals: DataFrame) -> DataFrame:
    """Return the ranges whose renewals blocked a group."""
    events.createOrReplaceTempView("events")
    renewals.createOrReplaceTempView("renewals")
    return events.sparkSession.sql(BLOCKED)


def sequence_numbers(events: DataFrame) -> DataFrame:
    """Return counts of events and of different sequence numbers by proxy (SEQUENCE_NUMBERS)."""
    events.createOrReplaceTempView("events")
    return events.sparkSession.sql(SEQUENCE_NUMBERS)
