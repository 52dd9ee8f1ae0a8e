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
    select l.partition, l.reader, l.log_offset, l.begin_ns, l.row, min(b.completed_ns) as reached_ns
    from lower l
    join accepted b on b.partition = l.partition and b.log_offset = l.reached
    group by l.partition, l.reader, l.log_offset, l.begin_ns, l.row
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
    select u.partition, u.reader, u.log_offset, u.begin_ns, u.row, min(a.completed_ns) as reached_ns
    from asked_for u
    join accepted a on a.partition = u.partition and a.log_offset = u.reached
    group by u.partition, u.reader, u.log_offset, u.begin_ns, u.row
),
unexplained as (
    select s.* from since s
    left anti join commits c
        on c.partition = s.partition and c.outcome != {FAIL} and c.log_offset <= s.log_offset
        and case when c.outcome = {OK} then c.completed_ns else {FOREVER} end > s.reached_ns
)
select f.partition, f.reader, f.log_offset, f.begin_ns,
       case when min(p.time_ns) < f.begin_ns then {GroupCase.SOUGHT} else {GroupCase.NO_CAUSE} end as case
from fell f
left join positions p on p.partition = f.partition and p.client = f.reader and p.event = {SOUGHT}
group by f.partition, f.reader, f.log_offset, f.begin_ns, f.row
union all
select partition, reader, log_offset, begin_ns, {GroupCase.OBSERVED} from unexplained

--- anomaly commit-ahead
select c.partition, c.client as reader, c.log_offset, c.invoked_ns as begin_ns
from commits c
join fact_partitions f on f.partition = c.partition
join fact_clients k on k.world = f.world and k.client = c.client and k.role = {MEMBER}
where c.outcome != {FAIL} and c.position >= 0 and c.log_offset > c.position
