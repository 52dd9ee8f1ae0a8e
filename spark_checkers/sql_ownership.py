"""The second opinion on who owned a partition of a group: one SQL text per anomaly. A member owns it from the end of
on_assign to the start of what takes it away, or to its end; but after a silence it may have lost it without knowing."""

from harness.group_cases import GroupCase
from harness.schema import ObservationKind

ASSIGN, REVOKE, LOST, CLOSE = 1, 2, 3, 4
_BACKLOG_NS = 2_000_000_000
"""What a member is told so soon after its return from a silence may be from before."""
OWNERSHIP_VIEWS = {
    # Members of each cell's group: how each ended, and when it was last known to live.
    "member": """
        select s.world, s.cell, k.client, k.planned, not (k.complete = 1 and k.exit_code in (0, {NONE})) as crashed,
               case when k.ended_ns != {MISSING} then k.ended_ns else h.last_ns end as ended_ns
        from fact_serving s
        join clients k on k.world = s.world and k.client = s.client and k.role = {MEMBER}
        left join (select world, client, max(time_ns) as last_ns from heartbeats group by world, client) h
            on h.world = k.world and h.client = k.client
    """,
    # What each member was told of each partition, and until when that held.
    "told": """
        select a.partition, m.world, m.cell, a.client, m.planned, m.crashed, a.event, a.started_ns, a.done_ns, a.row,
               coalesce(
                   lead(a.started_ns) over (partition by a.partition, a.client order by a.started_ns, a.row), m.ended_ns
               ) as until_ns
        from assignments a
        join fact_partitions f on f.partition = a.partition
        join member m on m.world = f.world and m.cell = f.cell and m.client = a.client
    """,
    # When each member was seen to poll: it was given records, or a callback ran.
    "polled": """
        select a.world, a.client, a.started_ns as time_ns from assignments a
        union
        select m.world, r.client, r.read_ns
        from reads r
        join fact_partitions f on f.partition = r.partition
        join member m on m.world = f.world and m.client = r.client
    """,
    # Signs of life, by what they prove: that it beats, that it polls, or either.
    "sign": """
        select e.*, case e.of when 'polls' then c.poll_limit_ns else c.session_ns end as limit_ns
        from (
            select world, client, time_ns, explode(array('beats', 'either')) as of from heartbeats
            union all
            select world, client, time_ns, explode(array('polls', 'either')) from polled
        ) e
        join member m on m.world = e.world and m.client = e.client
        join fact_cells c on c.world = m.world and c.cell = m.cell
    """,
    # Silences that may have cost it its partitions: since then it may have been evicted, until then it did not know.
    "silence": """
        select world, client, before_ns + limit_ns as evicted_ns, time_ns as back_ns
        from (
            select *, lag(time_ns) over (partition by world, client, of order by time_ns) as before_ns from sign
        )
        where time_ns - before_ns >= limit_ns
    """,
    # Ownership: `until_ns` as the member believed, `sure_ns` at the longest for certain.
    "owned": f"""
        select o.*, row_number() over (
                   partition by o.partition order by o.begin_ns, o.client, o.started_ns, o.row
               ) as number
        from (
            select t.partition, t.world, t.cell, t.client, t.planned, t.crashed, t.started_ns, t.row, t.done_ns as begin_ns,
                   t.until_ns, least(t.until_ns, min(s.evicted_ns)) as sure_ns
            from told t
            left join silence s
                on s.world = t.world and s.client = t.client and s.back_ns >= t.done_ns - {_BACKLOG_NS}L
            where t.event = {ASSIGN} and t.done_ns != {{MISSING}} and t.until_ns > t.done_ns
            group by t.partition, t.world, t.cell, t.client, t.planned, t.crashed, t.started_ns, t.row, t.done_ns, t.until_ns
        ) o
    """,
}


def _overlaps(until: str) -> str:
    """Intervals that begin within another member's, and the one of those that began first."""
    return f"""
        select l.partition, l.number as later, min(e.number) as earlier
        from owned l
        join owned e on e.partition = l.partition and e.number < l.number and e.client != l.client
            and e.{until} > l.begin_ns
        where l.{until} > l.begin_ns
        group by l.partition, l.number
    """


QUERIES = {
    "two-owners": f"""
        with sure as ({_overlaps("sure_ns")}),
        believed as (
            {_overlaps("until_ns")}
        ),
        pair as (
            select *, true as for_certain from sure
            union all
            select b.*, false from believed b
            left anti join sure c on c.partition = b.partition and c.later = b.later and c.earlier = b.earlier
        ),
        judged as (
            select p.for_certain, l.partition, l.client as reader, l.begin_ns, least(l.until_ns, e.until_ns) as end_ns,
                   e.client as other_client, e.begin_ns as other_ns, f.twins and l.planned = e.planned as twins,
                   coalesce(bool_or(c.client = l.client) and bool_or(c.client = e.client), false) as both
            from pair p
            join owned l on l.partition = p.partition and l.number = p.later
            join owned e on e.partition = p.partition and e.number = p.earlier
            join fact_cells f on f.world = l.world and f.cell = l.cell
            left join commits c
                on c.partition = l.partition and c.outcome = {{OK}} and c.completed_ns != {{MISSING}}
                and c.invoked_ns >= l.begin_ns and c.completed_ns <= e.until_ns
            group by p.for_certain, l.partition, l.number, e.number, l.client, l.begin_ns, l.until_ns, e.until_ns,
                     e.client, e.begin_ns, f.twins, l.planned, e.planned
        )
        select partition, reader, begin_ns, end_ns, other_client, other_ns,
               case when both then {int(GroupCase.BOTH_COMMITTED)}
                    when twins then {int(GroupCase.SAME_INSTANCE)} else {int(GroupCase.NO_CAUSE)} end as case
        from judged where for_certain or both
    """,
    "orphaned": f"""
        with drained as (
            select f.world, f.cell, f.partition, max(o.time_ns) as begin_ns
            from observations o
            join fact_partitions f on f.partition = o.partition
            where o.kind = {int(ObservationKind.DRAIN_BEGUN)} group by f.world, f.cell, f.partition
        ),
        left_at as (
            select m.world, m.cell, m.ended_ns as time_ns from member m
            union all
            select s.world, s.cell, a.started_ns
            from assignments a join fact_serving s on s.world = a.world and s.client = a.client
            where a.event = {CLOSE}
        ),
        judged as (
            select d.world, d.cell, d.partition, d.begin_ns, coalesce(min(e.time_ns), d.begin_ns) as end_ns
            from drained d
            left join left_at e on e.world = d.world and e.cell = d.cell and e.time_ns > d.begin_ns
            group by d.world, d.cell, d.partition, d.begin_ns
        ),
        last_owner as (
            select * from (
                select *, row_number() over (partition by partition order by until_ns desc, number) as newest from owned
            )
            where newest = 1
        )
        select j.partition, greatest(j.begin_ns, o.until_ns) as begin_ns, j.end_ns,
               coalesce(o.client, {{NONE}}) as other_client,
               case when o.crashed and j.end_ns - o.until_ns < c.session_ns then {int(GroupCase.WITHIN_SESSION)}
                    else {int(GroupCase.NO_CAUSE)} end as case
        from judged j
        join fact_cells c on c.world = j.world and c.cell = j.cell
        left join last_owner o on o.partition = j.partition
        left anti join owned a on a.partition = j.partition and a.begin_ns <= j.end_ns and a.until_ns >= j.end_ns
    """,
}
"""Anomaly → text."""
