"""The second opinion on consumer groups: one SQL text for each anomaly of ownership, commits and processing.

A member owns a partition from the end of on_assign to the start of the callback that takes it away, or to the member's
end. After a silence it may have lost the partition without knowing it.
"""

from prozess.harness.interfaces.witnesses import GroupCase
from prozess.harness.schema import ObservationKind
from prozess.spark_checkers.oracle.views import identity

ASSIGN, REVOKE, LOST, CLOSE = 1, 2, 3, 4
_BACKLOG_NS = 2_000_000_000
"""What a member is told so soon after it returned from a silence may be older than the silence."""
_GAP_NS = 1_000_000_000
"""A member whose heart stops for longer stood still."""
OWNERSHIP_VIEWS = {
    # Members of each cell's group: how each ended, and when it was last known to live.
    "member": """
        select s.world, s.cell, k.client, k.planned, k.started_ns, h.last_ns,
               not (k.complete = 1 and k.exit_code in (0, {NONE})) as crashed,
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
    # When each member was seen to poll: it received records, or a callback ran.
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
    # When a member of a group began (until its first callback), ended, stood still, or may have polled too rarely.
    "coming_or_going": f"""
        select m.world, m.cell, m.started_ns as from_ns, coalesce(min(a.started_ns), m.ended_ns) as to_ns
        from member m
        left join assignments a on a.world = m.world and a.client = m.client
        group by m.world, m.cell, m.client, m.started_ns, m.ended_ns
        union all
        select g.world, g.cell, g.from_ns, g.to_ns + if(g.crashed or c.stays, c.evicted_after_ns, 0)
        from (
            select world, cell, crashed, ended_ns as from_ns, ended_ns as to_ns from member
            union all
            select m.world, m.cell, m.crashed, a.started_ns, if(a.done_ns = {{MISSING}}, m.ended_ns, a.done_ns)
            from member m
            join assignments a on a.world = m.world and a.client = m.client and a.event = {CLOSE}
        ) g
        join fact_cells c on c.world = g.world and c.cell = g.cell
        union all
        select b.world, b.cell, b.before_ns, b.time_ns + b.evicted_after_ns
        from (
            select m.world, m.cell, h.time_ns, c.evicted_after_ns,
                   lag(h.time_ns) over (partition by m.world, m.cell, m.client order by h.time_ns) as before_ns
            from member m
            join fact_cells c on c.world = m.world and c.cell = m.cell
            join heartbeats h on h.world = m.world and h.client = m.client
        ) b
        where b.time_ns - b.before_ns > {_GAP_NS}L
        union all
        select p.world, p.cell, p.before_ns + p.poll_limit_ns, p.time_ns + {_BACKLOG_NS}L
        from (
            select m.world, m.cell, x.time_ns, c.poll_limit_ns,
                   lag(x.time_ns) over (partition by m.world, m.cell, m.client order by x.time_ns) as before_ns
            from member m
            join fact_cells c on c.world = m.world and c.cell = m.cell
            join (
                select world, client, time_ns from polled
                union all select world, client, started_ns from member
                union all select world, client, ended_ns from member
            ) x on x.world = m.world and x.client = m.client
        ) p
        where p.time_ns - p.before_ns >= p.poll_limit_ns
        union all
        select l.world, l.cell, s.from_ns, max(coalesce(l.owned_ns, {2**62}L))
        from (
            select f.world, f.cell, f.partition, min(a.done_ns) as owned_ns
            from fact_partitions f
            left join assignments a
                on a.partition = f.partition and a.event = {ASSIGN} and a.done_ns != {{MISSING}}
            where f.late group by f.world, f.cell, f.partition
        ) l
        join (select world, cell, min(started_ns) as from_ns from member group by world, cell) s
            on s.world = l.world and s.cell = l.cell
        group by l.world, l.cell, s.from_ns
    """,
    # Stretches in which nobody came or went, and in which some member lived: what is settled, and until when.
    "calm": """
        select g.world, g.cell, g.since_ns, g.until_ns, g.since_ns + c.settle_ns as settled_ns
        from (
            select n.world, n.cell, n.from_ns as until_ns, max(e.to_ns) as since_ns
            from (select distinct world, cell, from_ns from coming_or_going) n
            join coming_or_going e on e.world = n.world and e.cell = n.cell and e.from_ns < n.from_ns
            group by n.world, n.cell, n.from_ns
        ) g
        join fact_cells c on c.world = g.world and c.cell = g.cell
        left semi join member m on m.world = g.world and m.cell = g.cell
            and m.started_ns <= g.since_ns and m.ended_ns >= g.until_ns
        left anti join member s on s.world = g.world and s.cell = g.cell and s.last_ns is null
        where g.since_ns + c.settle_ns < g.until_ns
    """,
}


def _overlaps(until: str) -> str:
    """Returns SQL for the intervals that begin within another member's interval, with the one of those that began first."""
    return f"""
        select l.partition, l.number as later, min(e.number) as earlier
        from owned l
        join owned e on e.partition = l.partition and e.number < l.number and e.client != l.client
            and e.{until} > l.begin_ns
        where l.{until} > l.begin_ns
        group by l.partition, l.number
    """


OWNERSHIP_QUERIES = {
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
    "unstable": f"""
        with judged as (
            select f.partition, m.*, c.settle_ns + c.evicted_after_ns as excused_ns
            from calm m
            join fact_partitions f on f.world = m.world and f.cell = m.cell
            join fact_cells c on c.world = m.world and c.cell = m.cell
        )
        select j.partition, o.client as reader, coalesce(b.client, {{NONE}}) as other_client,
               o.begin_ns - j.excused_ns as begin_ns, o.begin_ns as end_ns, j.since_ns as other_ns,
               {int(GroupCase.REASSIGNED)} as case
        from judged j
        join owned o on o.partition = j.partition and o.begin_ns > j.settled_ns and o.begin_ns < j.until_ns
        left join owned b on b.partition = o.partition and b.number = o.number - 1
        union all
        select j.partition, {{NONE}}, coalesce(max_by(e.client, e.number), {{NONE}}), j.until_ns - j.excused_ns, j.until_ns,
               j.since_ns, {int(GroupCase.UNOWNED)}
        from judged j
        left anti join owned a
            on a.partition = j.partition and a.begin_ns < j.until_ns and a.until_ns > j.settled_ns
        left join owned e on e.partition = j.partition and e.begin_ns < j.until_ns
        group by j.partition, j.until_ns, j.excused_ns, j.since_ns
    """,
}
"""The SQL text of each anomaly of ownership."""


# Committed offsets of groups, with the causes of what is found.


ASSIGNED, SOUGHT, RESET = 1, 2, 3
"""The values of `positions.event`."""
_LOOKED_UP = f"o.kind = {int(ObservationKind.COMMITTED)}"
COMMIT_VIEWS = {
    # Commits that were accepted, and acknowledged at a known time.
    "accepted": "select * from commits where outcome = {OK} and completed_ns != {MISSING}",
    # Commits, and look-ups of the committed offset: the greatest that had been acknowledged before each.
    "asked": f"""
        select * from (
            select partition, reader, log_offset, at_ns as begin_ns, row, looked_up,
                   max(acknowledged) over (
                       partition by partition order by at_ns, acknowledged is not null
                       rows between unbounded preceding and current row
                   ) as reached
            from (
                select partition, client as reader, log_offset, invoked_ns as at_ns, row, false as looked_up,
                       cast(null as bigint) as acknowledged
                from accepted
                union all
                select o.partition, o.client, o.value, o.time_ns, o.row, true, null from observations o where {_LOOKED_UP}
                union all
                select partition, null, null, completed_ns, null, null, log_offset from accepted
            )
        )
        where looked_up is not null
    """,
    # The greatest offset that the group is known to have committed.
    "greatest": f"""
        select partition, max(log_offset) as top from (
            select partition, log_offset from accepted
            union all
            select o.partition, o.value from observations o where {_LOOKED_UP}
        )
        group by partition
    """,
}
COMMIT_QUERIES = {
    "commit-regression": f"""
        with lower as (
            select partition, reader, log_offset, begin_ns, row, reached from asked
            where not looked_up and reached > log_offset
        ),
        lower_since as (
            select l.partition, l.reader, l.log_offset, l.begin_ns, l.row, min(b.completed_ns) as reached_ns
            from lower l
            join accepted b on b.partition = l.partition and b.log_offset = l.reached
            group by l.partition, l.reader, l.log_offset, l.begin_ns, l.row
        ),
        fell as (
            select s.* from lower_since s
            left anti join commits c
                on c.partition = s.partition and c.outcome != {{FAIL}} and c.log_offset <= s.log_offset
                and c.invoked_ns < s.begin_ns
                and case when c.outcome = {{OK}} then c.completed_ns else {{FOREVER}} end > s.reached_ns
        ),
        looked_up as (
            select partition, reader, log_offset, begin_ns, row, reached from asked where looked_up and reached > log_offset
        ),
        since as (
            select u.partition, u.reader, u.log_offset, u.begin_ns, u.row, min(a.completed_ns) as reached_ns
            from looked_up u
            join accepted a on a.partition = u.partition and a.log_offset = u.reached
            group by u.partition, u.reader, u.log_offset, u.begin_ns, u.row
        ),
        unexplained as (
            select s.* from since s
            left anti join commits c
                on c.partition = s.partition and c.outcome != {{FAIL}} and c.log_offset <= s.log_offset
                and case when c.outcome = {{OK}} then c.completed_ns else {{FOREVER}} end > s.reached_ns
        )
        select f.partition, f.reader, f.log_offset, f.begin_ns,
               case when min(p.time_ns) < f.begin_ns then {int(GroupCase.SOUGHT)} else {int(GroupCase.NO_CAUSE)} end as case
        from fell f
        left join positions p on p.partition = f.partition and p.client = f.reader and p.event = {SOUGHT}
        group by f.partition, f.reader, f.log_offset, f.begin_ns, f.row
        union all
        select partition, reader, log_offset, begin_ns, {int(GroupCase.OBSERVED)} from unexplained
    """,
    "commit-ahead": """
        select c.partition, c.client as reader, c.log_offset, c.invoked_ns as begin_ns
        from commits c
        join fact_partitions f on f.partition = c.partition
        join fact_clients k on k.world = f.world and k.client = c.client and k.role = {MEMBER}
        where c.outcome != {FAIL} and c.position >= 0 and c.log_offset > c.position
    """,
}
"""The SQL text of each anomaly of commits."""


# What consumer groups process, with the causes of what is found.


GROUP_VIEWS = {
    # Where the group began: at the first position of a member; at the start where a partition was added to what it had
    # subscribed to, or where it was told that there is no position.
    "beginning": f"""
        select p.partition,
               case when f.late or p.event = {SOUGHT} or (p.event = {RESET} and c.reset != 'latest') then 0L
                    else p.log_offset end as start
        from (
            select q.*, row_number() over (partition by q.partition order by q.time_ns, q.row) as number
            from positions q
            join fact_partitions f on f.partition = q.partition
            join fact_cells c on c.world = f.world and c.cell = f.cell
            left semi join member m on m.world = f.world and m.client = q.client
            where (q.event in ({ASSIGNED}, {RESET}) and q.log_offset >= 0) or (q.event = {SOUGHT} and c.reset = 'error')
        ) p
        join fact_partitions f on f.partition = p.partition
        join fact_cells c on c.world = f.world and c.cell = f.cell
        where p.number = 1
    """,
    "finished": "select * from processed where done_ns != {MISSING}",
    # What members sent to retry partitions without learning that it arrived.
    "unacknowledged": """
        select s.* from sent s
        left semi join fact_partitions f on f.retried_in = s.partition
        where s.outcome != {OK}
    """,
    # A member gave the partition up, or it was taken away.
    "release": f"select * from assignments where event in ({REVOKE}, {LOST}, {CLOSE})",
    # Each member's spans: how they began.
    "span_begin": f"""
        select partition, client, span, time_ns, event = {SOUGHT} as sought from (
            select partition, client, greatest(span, 0) as span, time_ns, event,
                   row_number() over (partition by partition, client, greatest(span, 0) order by time_ns, row) as number
            from positions
        )
        where number = 1
    """,
    # What each record in a retry partition was made from; `source` is the partition that it belongs to.
    "handed_on": """
        select distinct f.partition as source, g.partition, g.sender, g.sequence, g.origin
        from given g join fact_partitions f on f.retried_in = g.partition
        where not g.unreadable and g.origin >= 0
    """,
    # The first time that each of them was processed.
    "handled": """
        select * from (
            select h.source, h.origin, d.*,
                   row_number() over (partition by d.partition, d.sender, d.sequence order by d.done_ns, d.row) as number
            from finished d
            join handed_on h on h.partition = d.partition and h.sender = d.sender and h.sequence = d.sequence
        )
        where number = 1
    """,
    # The attempt that led to each: the sender's last one before it sent it; and whether that send was confirmed.
    "handled_after": """
        select * from (
            select h.source, h.origin, h.row, s.outcome as send_outcome, a.row as attempt,
                   row_number() over (partition by h.source, h.row order by a.started_ns desc, a.row desc) as number
            from handled h
            left join sent s on s.partition = h.partition and s.client = h.sender and s.sequence = h.sequence
            left join processed a
                on a.partition = h.source and a.done_ns = {MISSING} and a.client = h.sender
                and IDENTITY = h.origin and a.started_ns <= s.invoked_ns
        )
        where number = 1
    """.replace("IDENTITY", identity("a.sender", "a.sequence")),
    # Whether a step processed the record of its offset. Either of them may not say which it is.
    "aimed": """
        select l.partition, l.log_offset,
               bool_or(l.unreadable or d.sender = {NONE} or d.sequence = {NONE}
                       or (d.sender = l.sender and d.sequence = l.sequence)) as rightly
        from finished d
        join log l on l.partition = d.partition and l.log_offset = d.log_offset
        join fact_partitions p on p.partition = l.partition
        join fact_cells c on c.world = p.world and c.cell = p.cell and c.isolation = l.level
        group by l.partition, l.log_offset
    """,
    # What the group had committed past, and no member has processed, nor anybody who was handed it; and in place of which
    # members processed another record.
    "left_over": f"""
        select l.partition, l.sender, l.sequence, l.log_offset, p.retried_in, p.world, d.partition is not null as mistaken
        from log l
        join fact_partitions p on p.partition = l.partition
        join fact_cells c on c.world = p.world and c.cell = p.cell and c.commit != 'none' and c.isolation = l.level
        left join greatest g on g.partition = l.partition
        left join beginning b on b.partition = l.partition
        left join aimed d on d.partition = l.partition and d.log_offset = l.log_offset
        left anti join handled h on h.source = l.partition and h.origin = {identity("l.sender", "l.sequence")}
        left anti join log k
            on k.partition = p.retried_in and k.level = l.level and k.origin = {identity("l.sender", "l.sequence")}
        where not coalesce(d.rightly, false)
          and (d.partition is not null or (l.log_offset >= b.start and l.log_offset < g.top))
    """,
    # Each time that a record was processed, and the time before. Where every step of an offset names its record, other
    # records of that offset are others: the log gave it away again.
    "taken": """
        select *, row_number() over one_record as time_number, lag(row) over one_record as before
        from (
            select *, case when named = 1 then sender else {NONE} end as of_sender,
                   case when named = 1 then sequence else {NONE} end as of_sequence
            from (
                select *, min(case when sender = {NONE} or sequence = {NONE} then 0 else 1 end)
                              over (partition by partition, log_offset) as named
                from finished
            )
        )
        window one_record as (partition by partition, log_offset, of_sender, of_sequence order by done_ns, row)
    """,
    # Each way in which a record of a partition with a retry partition was done, there or here, and the way before.
    "way": f"""
        select *, lag(row) over one_record as before, lag(attempt) over one_record as attempt_before,
               lag(from_retry) over one_record as from_retry_before, lag(send_outcome) over one_record as told_before
        from (
            select d.partition as source, {identity("d.sender", "d.sequence")} as origin, d.done_ns, d.row,
                   false as from_retry, d.row as attempt, cast(null as int) as send_outcome
            from finished d join fact_partitions f on f.partition = d.partition and f.retried_in is not null
            union all
            select h.source, h.origin, h.done_ns, h.row, true, a.attempt, a.send_outcome
            from handled h join handled_after a on a.source = h.source and a.row = h.row
        )
        window one_record as (partition by source, origin order by done_ns, from_retry, row)
    """,
    # Records that were processed again: rows of `processed`, and the attempts that led to both. `copy`: a further copy of it.
    "again": """
        select row, row as attempt, before as attempt_before, cast(null as int) as told_before, false as copy
        from taken where time_number > 1
        union all
        select row, null, null, null, true from (
            select *, row_number() over (partition by partition, sender, sequence order by log_offset) as copy_number
            from taken where time_number = 1 and sender != {NONE} and sequence != {NONE}
        )
        where copy_number > 1
        union all
        select row, attempt, attempt_before, told_before, false from way
        where before is not null and (from_retry or from_retry_before)
    """,
    # Why: what is true of each.
    "why_again": f"""
        select w.row, w.attempt, w.attempt_before, w.copy, a.row is not null and b.row is not null as known,
               w.attempt = w.attempt_before as same_attempt, w.told_before != {{OK}} as unconfirmed,
               coalesce(s.sought, false) as sought,
               a.client = b.client and greatest(a.span, 0) = greatest(b.span, 0) as one_span,
               a.client != b.client and coalesce(m.crashed, false) as crashed,
               a.client != b.client and coalesce(bool_or(
                   (r.event = {LOST} and r.client in (a.client, b.client)) or (r.client = b.client and not c.tells_lost)
                   or (c.twins and n.planned = m.planned)
               ), c.twins and n.planned = m.planned, false) as evicted,
               coalesce(min(case when r.client = b.client then r.started_ns end) <= a.started_ns, false) as released,
               a.partition, a.log_offset, s.time_ns as span_ns
        from again w
        left join processed a on a.row = w.attempt
        left join processed b on b.row = w.attempt_before
        left join span_begin s
            on s.partition = a.partition and s.client = a.client and s.span = greatest(a.span, 0)
        left join fact_partitions f on f.partition = b.partition
        left join fact_cells c on c.world = f.world and c.cell = f.cell
        left join member m on m.world = f.world and m.client = b.client
        left join member n on n.world = f.world and n.client = a.client
        left join release r
            on r.partition = a.partition
            and r.started_ns >= case when b.done_ns = {{MISSING}} then b.started_ns else b.done_ns end
        group by w.row, w.copy, a.row, b.row, w.attempt, w.attempt_before, w.told_before, s.sought, a.client, b.client,
                 a.span, b.span, m.crashed, m.planned, n.planned, c.twins, a.started_ns, a.partition, a.log_offset, s.time_ns
    """,
    # Those of a span before which a commit beyond the record had been acknowledged, and nothing as low was under way since.
    "covered": """
        select b.attempt, b.attempt_before
        from (
            select w.attempt, w.attempt_before, w.partition, w.log_offset, w.span_ns, min(a.completed_ns) as since_ns
            from why_again w
            join accepted a
                on a.partition = w.partition and a.log_offset > w.log_offset and a.completed_ns < w.span_ns
            group by w.attempt, w.attempt_before, w.partition, w.log_offset, w.span_ns
        ) b
        left anti join commits c
            on c.partition = b.partition and c.outcome != {FAIL} and c.invoked_ns < b.span_ns
            and c.log_offset <= b.log_offset
            and case when c.outcome = {OK} then c.completed_ns else {FOREVER} end > b.since_ns
    """,
}
GROUP_QUERIES = {
    "unprocessed": f"""
        with given_last as (
            select * from (
                select g.partition, g.log_offset, g.client, g.read_ns, m.crashed,
                       row_number() over (partition by g.partition, g.log_offset order by g.read_ns desc, g.row desc)
                           as newest
                from given g
                join member m on m.world = g.world and m.client = g.client
                left semi join left_over o on o.partition = g.partition and o.log_offset = g.log_offset
            )
            where newest = 1
        ),
        reset as (
            select p.partition, p.time_ns, p.log_offset, coalesce(max(a.log_offset), {{NONE}}) as reached
            from positions p
            join fact_partitions f on f.partition = p.partition
            left semi join member m on m.world = f.world and m.client = p.client
            left join accepted a on a.partition = p.partition and a.completed_ns < p.time_ns
            where p.event = {RESET} group by p.partition, p.time_ns, p.log_offset, p.row
        ),
        tried_last as (
            select * from (
                select *, row_number() over (partition by partition, log_offset order by started_ns desc, row desc) as newest
                from processed where done_ns = {{MISSING}}
            )
            where newest = 1
        ),
        never_arrived as (
            select s.partition, s.client, max(s.invoked_ns) as invoked_ns
            from unacknowledged s
            left anti join (
                select g.* from given g
                left semi join unacknowledged u
                    on u.partition = g.partition and u.client = g.sender and u.sequence = g.sequence
            ) g on g.partition = s.partition and g.sender = s.client and g.sequence = s.sequence and not g.unreadable
            group by s.partition, s.client
        )
        select o.partition, o.sender as client, o.sequence, o.log_offset, coalesce(g.client, {{NONE}}) as reader,
               coalesce(g.read_ns, {{MISSING}}) as seen_ns,
               case when o.mistaken then {int(GroupCase.MISTAKEN)}
                    when max(n.invoked_ns) >= max(t.started_ns) then {int(GroupCase.LEFT_BEHIND)}
                    when bool_or(o.log_offset < r.log_offset
                                 and (g.client is null or (g.read_ns <= r.time_ns and o.log_offset >= r.reached)))
                        then {int(GroupCase.RESET)}
                    when max(q.started_ns) >= g.read_ns then {int(GroupCase.RELEASED)}
                    when g.crashed then {int(GroupCase.CRASHED)}
                    else {int(GroupCase.NO_CAUSE)} end as case
        from left_over o
        left join given_last g on g.partition = o.partition and g.log_offset = o.log_offset
        left join reset r on r.partition = o.partition
        left join release q on q.partition = o.partition and q.client = g.client
        left join tried_last t on t.partition = o.partition and t.log_offset = o.log_offset
        left join never_arrived n on n.partition = o.retried_in and n.client = t.client
        group by o.partition, o.sender, o.sequence, o.log_offset, o.mistaken, g.client, g.read_ns, g.crashed
    """,
    "reprocessed": f"""
        select d.partition, d.sender as client, d.sequence, d.log_offset, d.client as reader, d.done_ns as end_ns,
               case when w.copy then {int(GroupCase.DUPLICATE)}
                    when not w.known then {int(GroupCase.NO_CAUSE)}
                    when w.same_attempt and w.unconfirmed then {int(GroupCase.SENT_AGAIN)}
                    when w.sought then {int(GroupCase.SOUGHT)}
                    when w.one_span then {int(GroupCase.NO_CAUSE)}
                    when c.attempt is not null then {int(GroupCase.COVERED)}
                    when w.released then {int(GroupCase.RELEASED)}
                    when w.crashed then {int(GroupCase.CRASHED)}
                    when w.evicted then {int(GroupCase.EVICTED)}
                    else {int(GroupCase.NO_CAUSE)} end as case
        from why_again w
        join processed d on d.row = w.row
        left join covered c on c.attempt = w.attempt and c.attempt_before = w.attempt_before
    """,
}
"""The SQL text of each anomaly of processing."""
