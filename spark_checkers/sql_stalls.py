"""The second opinion on readers that are given nothing, and last stable offsets that stand still."""

from harness.metrics import MICRO, code_of
from harness.stalls import STALLED_NS, StallCase

_ASSIGNED = 1
"""`positions.event`."""
_BEAT_GAP_NS = 1_000_000_000
STALL_VIEWS = {
    # Since when each record, or a later one of its log, was certainly there for everybody. From the end backwards: Spark goes
    # through a window that ends there once for every row.
    "certain": """
        select partition, level, log_offset, sender, sequence,
               min(since_ns) over (
                   partition by partition, level order by log_offset desc rows between unbounded preceding and current row
               ) as since_ns
        from (
            select l.*,
                   case when s.outcome = {OK} and s.acks != 0 then least(l.read_ns, s.completed_ns) else l.read_ns end
                       as since_ns
            from log l
            left join sent s
                on s.partition = l.partition and s.client = l.sender and s.sequence = l.sequence and not l.unreadable
        )
    """,
    # Until when each record of a transaction may have held back what stands behind it; offset NONE: anything.
    "holding": """
        select s.partition, s.log_offset,
               case when x.completed_ns != {MISSING} and x.outcome != {INFO}
                    then least(x.completed_ns, x.begun_ns + c.transaction_ns) else x.begun_ns + c.transaction_ns end
                   as until_ns
        from sent s
        join transactions x on x.world = s.world and x.client = s.client and x.transaction = s.transaction
        join fact_cells c on c.world = s.world and c.cell = s.cell and c.transaction_ns is not null
        where s.transaction != {NONE} and (s.outcome != {FAIL} or x.outcome = {FAIL})
    """,
    # Each reader of each partition that it was assigned.
    "reading": f"""
        select r.world, r.cell, r.client, r.level, p.partition, min(p.time_ns) as begin_ns,
               case when k.ended_ns != {{MISSING}} then k.ended_ns else h.last_ns end as end_ns
        from fact_readers r
        join clients k on k.world = r.world and k.client = r.client
        join (select world, client, max(time_ns) as last_ns from heartbeats group by world, client) h
            on h.world = r.world and h.client = r.client
        join fact_partitions f on f.world = r.world and f.cell = r.cell
        join positions p on p.partition = f.partition and p.client = r.client and p.event = {_ASSIGNED}
        group by r.world, r.cell, r.client, r.level, p.partition, k.ended_ns, h.last_ns
    """,
    # Stretches in which a reader was given nothing, and how far it had got before.
    "wait": f"""
        select * from (
            select g.*, lead(g.time_ns) over (partition by g.partition, g.client order by g.place, g.row) as next_ns,
                   max(g.log_offset) over (partition by g.partition, g.client order by g.place, g.row) as reached
            from (
                select world, client, level, partition, 0 as place, 0L as row, begin_ns as time_ns, -1L as log_offset
                from reading
                union all
                select d.world, d.client, d.level, d.partition, 1, r.row, r.read_ns, r.log_offset
                from reading d join reads r on r.partition = d.partition and r.client = d.client
                union all
                select world, client, level, partition, 2, 0L, end_ns, cast(null as bigint) from reading
            ) g
        )
        where next_ns - time_ns >= {STALLED_NS}L
    """,
    # What they were waiting for: the first record beyond that, and since when it was there to be read.
    "unread": """
        select u.world, u.client, u.partition, u.first.log_offset, u.first.sender, u.first.sequence, u.next_ns as end_ns,
               greatest(u.time_ns, u.first.since_ns, max(h.until_ns)) as begin_ns
        from (
            select w.world, w.client, w.level, w.partition, w.time_ns, w.next_ns,
                   min(struct(r.log_offset, r.sender, r.sequence, r.since_ns)) as first
            from wait w
            join certain r on r.partition = w.partition and r.level = w.level and r.log_offset > w.reached
            group by w.world, w.client, w.level, w.partition, w.time_ns, w.next_ns
        ) u
        left join holding h
            on h.partition = u.partition and u.level = {COMMITTED}
            and (h.log_offset <= u.first.log_offset or h.log_offset = {NONE})
        group by u.world, u.client, u.partition, u.first, u.time_ns, u.next_ns
    """,
}
_BEATING = f"""
    with stretch as (select * from unread where end_ns - begin_ns >= {STALLED_NS}L),
    edge as (
        select world, client, partition, begin_ns, begin_ns as time_ns from stretch
        union all
        select world, client, partition, begin_ns, end_ns from stretch
        union all
        select s.world, s.client, s.partition, s.begin_ns, h.time_ns
        from stretch s
        join heartbeats h on h.world = s.world and h.client = s.client and h.time_ns > s.begin_ns and h.time_ns < s.end_ns
    ),
    beat as (
        select *, sum(still) over (partition by partition, client, begin_ns order by time_ns) as island
        from (
            select *, case when time_ns - lag(time_ns) over (
                       partition by partition, client, begin_ns order by time_ns
                   ) > {_BEAT_GAP_NS}L then 1 else 0 end as still
            from edge
        )
    ),
    longest as (
        select partition, client, begin_ns, max_by(struct(from_ns, to_ns), struct(to_ns - from_ns, -from_ns)) as alive
        from (
            select partition, client, begin_ns, min(time_ns) as from_ns, max(time_ns) as to_ns
            from beat group by partition, client, begin_ns, island
        )
        group by partition, client, begin_ns
    )
"""


def _series(metric: str) -> str:
    return f"""
        select partition, time_ns, row, value_micro div {MICRO} as value
        from metrics where metric = {code_of(metric)} and partition != {{NONE}} and absent = 0
    """


QUERIES = {
    "stalled": f"""
        {_BEATING},
        stable as ({_series("last_stable_offset")}),
        high as ({_series("high_watermark")}),
        still as (
            select partition, value, min(time_ns) as from_ns, max(time_ns) as to_ns
            from (
                select *, sum(moved) over (partition by partition order by time_ns, row) as island from (
                    select *, case when value = lag(value) over (partition by partition order by time_ns, row)
                              then 0 else 1 end as moved
                    from stable
                )
            )
            group by partition, value, island
            having max(time_ns) - min(time_ns) >= {STALLED_NS}L
        ),
        above as (
            select s.partition, s.value, min(h.time_ns) as from_ns, max(h.time_ns) as to_ns
            from still s
            join high h on h.partition = s.partition and h.value > s.value and h.time_ns between s.from_ns and s.to_ns
            group by s.partition, s.value, s.from_ns
        ),
        held as (
            select a.partition, a.value, greatest(a.from_ns, max(h.until_ns)) as from_ns, a.to_ns
            from above a
            left join holding h on h.partition = a.partition and (h.log_offset <= a.value or h.log_offset = {{NONE}})
            group by a.partition, a.value, a.from_ns, a.to_ns
        )
        select u.partition, u.sender as client, u.sequence, u.log_offset, u.client as reader,
               case when l.alive.to_ns - l.alive.from_ns >= {STALLED_NS}L then l.alive.from_ns else u.begin_ns end
                   as begin_ns,
               case when l.alive.to_ns - l.alive.from_ns >= {STALLED_NS}L then l.alive.to_ns else u.end_ns end as end_ns,
               case when l.alive.to_ns - l.alive.from_ns >= {STALLED_NS}L
                    then {int(StallCase.READER)} else {int(StallCase.STARVED)} end as case
        from stretch u
        join longest l on l.partition = u.partition and l.client = u.client and l.begin_ns = u.begin_ns
        union all
        select partition, {{NONE}}, {{NONE}}, value, {{NONE}}, from_ns, to_ns, {int(StallCase.STABLE_OFFSET)}
        from held where to_ns - from_ns >= {STALLED_NS}L
    """,
}
"""Anomaly → text."""
