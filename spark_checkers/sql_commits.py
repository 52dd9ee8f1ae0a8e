"""The second opinion on committed offsets of groups: one SQL text per anomaly, with the causes."""

from harness.group_cases import GroupCase
from harness.schema import ObservationKind

ASSIGNED, SOUGHT, RESET = 1, 2, 3
"""`positions.event`."""
_LOOKED_UP = f"o.kind = {int(ObservationKind.COMMITTED)}"
COMMIT_VIEWS = {
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
}
QUERIES = {
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
