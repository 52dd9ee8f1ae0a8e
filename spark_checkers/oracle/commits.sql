-- Committed offsets of groups, with the causes of what is found.

--- fragment asked_for
-- An observation `o` of a group's committed offset.
o.kind = {ObservationKind.COMMITTED}

--- view accepted
-- Commits that were accepted, and acknowledged at a known time.
select * from commits where outcome = {OK} and completed_ns != {MISSING}

--- view asked
-- Commits, and look-ups of the committed offset: the greatest that had been acknowledged before each.
select * from (
    select partition, reader, log_offset, at_ns as begin_ns, row, asked_for,
           max(acknowledged) over (
               partition by partition order by at_ns, acknowledged is not null
               rows between unbounded preceding and current row
           ) as reached
    from (
        select partition, client as reader, log_offset, invoked_ns as at_ns, row, false as asked_for,
               cast(null as bigint) as acknowledged
        from accepted
        union all
        select o.partition, o.client, o.value, o.time_ns, o.row, true, null from observations o where {asked_for}
        union all
        select partition, null, null, completed_ns, null, null, log_offset from accepted
    )
)
where asked_for is not null

--- view greatest
-- The greatest offset that the group is known to have committed.
select partition, max(log_offset) as top from (
    select partition, log_offset from accepted
    union all
    select o.partition, o.value from observations o where {asked_for}
)
group by partition

--- anomaly commit-regression
with lower as (
    select partition, reader, log_offset, begin_ns, row, reached from asked
    where not asked_for and reached > log_offset
),
lower_since as (
    select l.partition, l.reader, l.log_offset, l.begin_ns, l.row, l.reached, min(b.completed_ns) as reached_ns,
           min_by(b.client, b.completed_ns) as other_client
    from lower l
    join accepted b on b.partition = l.partition and b.log_offset = l.reached
    group by l.partition, l.reader, l.log_offset, l.begin_ns, l.row, l.reached
),
fell as (
    select s.* from lower_since s
    left anti join commits c
        on c.partition = s.partition and c.outcome != {FAIL} and c.log_offset <= s.log_offset
        and c.invoked_ns < s.begin_ns
        and case when c.outcome = {OK} then c.completed_ns else {FOREVER} end > s.reached_ns
),
asked_for as (
    select partition, reader, log_offset, begin_ns, row, reached from asked where asked_for and reached > log_offset
),
since as (
    select u.partition, u.reader, u.log_offset, u.begin_ns, u.row, u.reached, min(a.completed_ns) as reached_ns,
           min_by(a.client, a.completed_ns) as other_client
    from asked_for u
    join accepted a on a.partition = u.partition and a.log_offset = u.reached
    group by u.partition, u.reader, u.log_offset, u.begin_ns, u.row, u.reached
),
unexplained as (
    select s.* from since s
    left anti join commits c
        on c.partition = s.partition and c.outcome != {FAIL} and c.log_offset <= s.log_offset
        and case when c.outcome = {OK} then c.completed_ns else {FOREVER} end > s.reached_ns
),
both as (
    select *, false as asked from fell union all select *, true from unexplained
),
foreign as (
    -- Whether the member of the greater commit had been given the record in front of it, in a topic that was made again.
    select b.partition, b.row, b.asked, max(r.log_offset) as given
    from both b
    join fact_partitions f on f.partition = b.partition
    join fact_cells c on c.world = f.world and c.cell = f.cell and c.life > 0
    left join reads r on r.partition = b.partition and r.client = b.other_client and r.read_ns <= b.reached_ns
    group by b.partition, b.row, b.asked, b.reached
    having coalesce(max(r.log_offset), -1) < b.reached - 1
)
select b.partition, b.reader, b.log_offset, b.begin_ns,
       case when not b.asked and min(p.time_ns) < b.begin_ns then {GroupCase.SOUGHT}
            when max(n.row) is not null then {GroupCase.OF_ANOTHER_TOPIC}
            when b.asked then {GroupCase.OBSERVED} else {GroupCase.NO_CAUSE} end as case
from both b
left join foreign n on n.partition = b.partition and n.row = b.row and n.asked = b.asked
left join positions p on p.partition = b.partition and p.client = b.reader and p.event = {SOUGHT}
group by b.partition, b.reader, b.log_offset, b.begin_ns, b.row, b.asked

--- anomaly commit-ahead
select c.partition, c.client as reader, c.log_offset, c.invoked_ns as begin_ns
from commits c
join fact_partitions f on f.partition = c.partition
join fact_clients k on k.world = f.world and k.client = c.client and k.role = {MEMBER}
where c.outcome != {FAIL} and c.position >= 0 and c.log_offset > c.position
