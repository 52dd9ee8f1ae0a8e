"""The second opinion on consumer groups: delivery and committed offsets, one SQL text per anomaly, with the causes. Who owned
what is in `sql_ownership`."""

from harness.group_cases import GroupCase
from harness.schema import ObservationKind
from spark_checkers.sql_ownership import CLOSE, LOST, REVOKE
from spark_checkers.sql_views import identity

ASSIGNED, SOUGHT, RESET = 1, 2, 3
"""`positions.event`."""
_LOOKED_UP = f"o.kind = {int(ObservationKind.COMMITTED)}"
GROUP_VIEWS = {
    # Commits that were accepted, and acknowledged at a known time.
    "accepted": "select * from commits where outcome = {OK} and completed_ns != {MISSING}",
    # The greatest offset that the group is known to have committed.
    "greatest": f"""
        select partition, max(log_offset) as top from (
            select partition, log_offset from accepted
            union all
            select o.partition, o.value from observations o where {_LOOKED_UP}
        )
        group by partition
    """,
    # Where the group began: at its first position; at the start where a partition was added to what it had subscribed to,
    # or where it was told that there is no position.
    "beginning": f"""
        select p.partition,
               case when f.late or p.event = {SOUGHT} or (p.event = {RESET} and c.reset != 'latest') then 0L
                    else p.log_offset end as start
        from (
            select q.*, row_number() over (partition by q.partition order by q.time_ns, q.row) as number
            from positions q
            join fact_partitions f on f.partition = q.partition
            join fact_cells c on c.world = f.world and c.cell = f.cell
            where (q.event in ({ASSIGNED}, {RESET}) and q.log_offset >= 0) or (q.event = {SOUGHT} and c.reset = 'error')
        ) p
        join fact_partitions f on f.partition = p.partition
        join fact_cells c on c.world = f.world and c.cell = f.cell
        where p.number = 1
    """,
    "finished": "select * from processed where done_ns != {MISSING}",
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
    # Records that were processed again: rows of `processed`, the attempts that led to both, and in which partition those
    # were made.
    "again": f"""
        with step as (
            select *, row_number() over (partition by partition, log_offset order by done_ns, row) as time_number,
                   lag(row) over (partition by partition, log_offset order by done_ns, row) as before
            from finished
        ),
        copy as (
            select *, row_number() over (partition by partition, sender, sequence order by log_offset) as copy_number
            from step where time_number = 1
        ),
        way as (
            select d.partition as source, {identity("d.sender", "d.sequence")} as origin, d.done_ns, d.row,
                   false as from_retry, d.row as attempt, cast(null as int) as send_outcome
            from finished d join fact_partitions f on f.partition = d.partition and f.retried_in is not null
            union all
            select h.source, h.origin, h.done_ns, h.row, true, a.attempt, a.send_outcome
            from handled h join handled_after a on a.source = h.source and a.row = h.row
        ),
        ways as (
            select *, lag(row) over one_record as before, lag(attempt) over one_record as attempt_before,
                   lag(from_retry) over one_record as from_retry_before, lag(send_outcome) over one_record as told_before
            from way
            window one_record as (partition by source, origin order by done_ns, from_retry, row)
        )
        select partition, row, row as attempt, before as attempt_before, cast(null as int) as told_before, false as copy
        from step where time_number > 1
        union all
        select partition, row, null, null, null, true from copy where copy_number > 1
        union all
        select source, row, attempt, attempt_before, told_before, false from ways
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
                   r.event = {LOST} and r.client in (a.client, b.client)
               ), false) as evicted,
               coalesce(min(case when r.client = b.client then r.started_ns end) <= a.started_ns, false) as released,
               a.partition, a.log_offset, s.time_ns as span_ns
        from again w
        left join processed a on a.row = w.attempt
        left join processed b on b.row = w.attempt_before
        left join span_begin s
            on s.partition = a.partition and s.client = a.client and s.span = greatest(a.span, 0)
        left join fact_partitions f on f.partition = b.partition
        left join member m on m.world = f.world and m.client = b.client
        left join release r
            on r.partition = a.partition
            and r.started_ns >= case when b.done_ns = {{MISSING}} then b.started_ns else b.done_ns end
        group by w.row, w.copy, a.row, b.row, w.attempt, w.attempt_before, w.told_before, s.sought, a.client, b.client,
                 a.span, b.span, m.crashed, a.started_ns, a.partition, a.log_offset, s.time_ns
    """,
    # Those of a span before which a commit beyond the record had been acknowledged, and nothing as low was under way since.
    "covered": """
        with beyond as (
            select w.attempt, w.attempt_before, w.partition, w.log_offset, w.span_ns, min(a.completed_ns) as since_ns
            from why_again w
            join accepted a
                on a.partition = w.partition and a.log_offset > w.log_offset and a.completed_ns < w.span_ns
            group by w.attempt, w.attempt_before, w.partition, w.log_offset, w.span_ns
        )
        select b.attempt, b.attempt_before from beyond b
        left anti join commits c
            on c.partition = b.partition and c.outcome != {FAIL} and c.invoked_ns < b.span_ns
            and c.log_offset <= b.log_offset
            and case when c.outcome = {OK} then c.completed_ns else {FOREVER} end > b.since_ns
    """,
}
QUERIES = {
    "unprocessed": f"""
        with left_over as (
            select l.partition, l.sender, l.sequence, l.log_offset, p.retried_in, p.world
            from log l
            join fact_partitions p on p.partition = l.partition
            join fact_cells c on c.world = p.world and c.cell = p.cell and c.commit != 'none' and c.isolation = l.level
            join greatest g on g.partition = l.partition
            join beginning b on b.partition = l.partition
            left anti join finished d on d.partition = l.partition and d.log_offset = l.log_offset
            left anti join handled h on h.source = l.partition and h.origin = {identity("l.sender", "l.sequence")}
            left anti join log k
                on k.partition = p.retried_in and k.level = l.level and k.origin = {identity("l.sender", "l.sequence")}
            where l.log_offset >= b.start and l.log_offset < g.top
        ),
        given_last as (
            select * from (
                select g.partition, g.log_offset, g.client, g.read_ns, m.crashed,
                       row_number() over (partition by g.partition, g.log_offset order by g.read_ns desc, g.row desc)
                           as newest
                from given g join member m on m.world = g.world and m.client = g.client
            )
            where newest = 1
        ),
        reset as (
            select p.partition, p.time_ns, p.log_offset, coalesce(max(a.log_offset), {{NONE}}) as reached
            from positions p
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
            from sent s
            left anti join given g
                on g.partition = s.partition and g.sender = s.client and g.sequence = s.sequence and not g.unreadable
            where s.outcome != {{OK}} group by s.partition, s.client
        )
        select o.partition, o.sender as client, o.sequence, o.log_offset, coalesce(g.client, {{NONE}}) as reader,
               coalesce(g.read_ns, {{MISSING}}) as seen_ns,
               case when max(n.invoked_ns) >= max(t.started_ns) then {int(GroupCase.LEFT_BEHIND)}
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
        group by o.partition, o.sender, o.sequence, o.log_offset, g.client, g.read_ns, g.crashed
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
    "commit-regression": f"""
        with lower as (
            select a.partition, a.client as reader, a.log_offset, a.invoked_ns as begin_ns, a.row,
                   max(b.log_offset) as reached
            from accepted a
            join accepted b on b.partition = a.partition and b.completed_ns < a.invoked_ns
            group by a.partition, a.client, a.log_offset, a.invoked_ns, a.row
            having max(b.log_offset) > a.log_offset
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
            select o.partition, o.client as reader, o.value as log_offset, o.time_ns as begin_ns, o.row,
                   max(a.log_offset) as reached
            from observations o
            join accepted a on a.partition = o.partition and a.completed_ns < o.time_ns
            where {_LOOKED_UP}
            group by o.partition, o.client, o.value, o.time_ns, o.row
            having max(a.log_offset) > o.value
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
"""Anomaly → text."""
