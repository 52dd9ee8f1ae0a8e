-- The second opinion on who owns the partitions of a consumer group.
--
-- A member owns a partition from the end of on_assign to the start of the callback that takes it away, or to the member's
-- end. After a silence it may have lost the partition without knowing it.

--- fragment overlaps(until)
-- The intervals that begin within another member's interval, with the one of those that began first. `until`: the column
-- of their ends.
select l.partition, l.number as later, min(e.number) as earlier
from owned l
join owned e on e.partition = l.partition and e.number < l.number and e.client != l.client
    and e.{until} > l.begin_ns
where l.{until} > l.begin_ns
group by l.partition, l.number

--- view member
-- Members of each cell's group: how each ended, and when it was last known to live.
select s.world, s.cell, k.client, k.planned, k.started_ns, h.last_ns,
       not (k.complete = 1 and k.exit_code in (0, {NONE})) as crashed,
       case when k.ended_ns != {MISSING} then k.ended_ns else h.last_ns end as ended_ns
from fact_serving s
join clients k on k.world = s.world and k.client = s.client and k.role = {MEMBER}
left join (select world, client, max(time_ns) as last_ns from heartbeats group by world, client) h
    on h.world = k.world and h.client = k.client

--- view claims
-- What each member was informed of each partition, and until when that held.
select a.partition, m.world, m.cell, a.client, m.planned, m.crashed, a.event, a.started_ns, a.done_ns, a.row,
       coalesce(
           lead(a.started_ns) over (partition by a.partition, a.client order by a.started_ns, a.row), m.ended_ns
       ) as until_ns
from assignments a
join fact_partitions f on f.partition = a.partition
join member m on m.world = f.world and m.cell = f.cell and m.client = a.client

--- view polled
-- When each member was seen to poll: it received records, a callback ran, or its heart beat while it asked for records.
select a.world, a.client, a.started_ns as time_ns from assignments a
union
select m.world, r.client, r.read_ns
from reads r
join fact_partitions f on f.partition = r.partition
join member m on m.world = f.world and m.client = r.client
union
select h.world, h.client, h.time_ns
from heartbeats h
join fact_asked a on a.world = h.world and a.client = h.client and a.kind = {ObservationKind.POLLED}
    and h.time_ns >= a.begin_ns and h.time_ns < a.end_ns

--- view sign
-- Signs of life, by what they prove: that it beats, that it polls, or either.
select e.*, case e.of when 'polls' then c.poll_limit_ns else c.session_ns end as limit_ns
from (
    select world, client, time_ns, explode(array('beats', 'either')) as of from heartbeats
    union all
    select world, client, time_ns, explode(array('polls', 'either')) from polled
) e
join member m on m.world = e.world and m.client = e.client
join fact_cells c on c.world = m.world and c.cell = m.cell

--- view silence
-- Silences that may have cost it its partitions: since then it may have been evicted, until then it did not know.
select world, client, before_ns + limit_ns as evicted_ns, time_ns as back_ns
from (
    select *, lag(time_ns) over (partition by world, client, of order by time_ns) as before_ns from sign
)
where time_ns - before_ns >= limit_ns

--- view owned
-- Ownership: `until_ns` as the member believed, `sure_ns` at the longest for certain.
select o.*, row_number() over (
           partition by o.partition order by o.begin_ns, o.client, o.started_ns, o.row
       ) as number
from (
    select t.partition, t.world, t.cell, t.client, t.planned, t.crashed, t.started_ns, t.row, t.done_ns as begin_ns,
           t.until_ns, least(t.until_ns, min(s.evicted_ns)) as sure_ns
    from claims t
    left join silence s
        on s.world = t.world and s.client = t.client and s.back_ns >= t.done_ns - {BACKLOG_NS}L
    where t.event = {ASSIGN} and t.done_ns != {MISSING} and t.until_ns > t.done_ns
    group by t.partition, t.world, t.cell, t.client, t.planned, t.crashed, t.started_ns, t.row, t.done_ns, t.until_ns
) o

--- fragment calms(to_ns)
-- Stretches in which nobody came or went, and in which some member lived: what is settled, and until when. `to_ns`: the
-- column that says until when somebody came or went.
select g.world, g.cell, g.since_ns, g.until_ns, g.since_ns + c.settle_ns as settled_ns
from (
    select n.world, n.cell, n.from_ns as until_ns, max(e.{to_ns}) as since_ns
    from (select distinct world, cell, from_ns from coming_or_going) n
    join coming_or_going e on e.world = n.world and e.cell = n.cell and e.from_ns < n.from_ns
    group by n.world, n.cell, n.from_ns
) g
join fact_cells c on c.world = g.world and c.cell = g.cell
left semi join member m on m.world = g.world and m.cell = g.cell
    and m.started_ns <= g.since_ns and m.ended_ns >= g.until_ns
left anti join member s on s.world = g.world and s.cell = g.cell and s.last_ns is null
where g.since_ns + c.settle_ns < g.until_ns

--- view other_comings
-- When a member of a group ended, stood still, or may have polled too rarely, and when a partition was added.
select g.world, g.cell, g.from_ns, g.to_ns + if(g.crashed or c.stays, c.evicted_after_ns, 0) as to_ns
from (
    select world, cell, crashed, ended_ns as from_ns, ended_ns as to_ns from member
    union all
    select m.world, m.cell, m.crashed, a.started_ns, if(a.done_ns = {MISSING}, m.ended_ns, a.done_ns)
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
where b.time_ns - b.before_ns > {GAP_NS}L
union all
select p.world, p.cell, p.before_ns + p.poll_limit_ns, p.time_ns + {BACKLOG_NS}L
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
select l.world, l.cell, s.from_ns, max(coalesce(l.owned_ns, {FAR}L))
from (
    select f.world, f.cell, f.partition, min(a.done_ns) as owned_ns
    from fact_partitions f
    left join assignments a
        on a.partition = f.partition and a.event = {ASSIGN} and a.done_ns != {MISSING}
    where f.late group by f.world, f.cell, f.partition
) l
join (select world, cell, min(started_ns) as from_ns from member group by world, cell) s
    on s.world = l.world and s.cell = l.cell
group by l.world, l.cell, s.from_ns

--- view coming_or_going
-- The same, and when a member began: until its first callback, and in `at_latest_ns` for no longer than a group takes to settle.
select m.world, m.cell, m.started_ns as from_ns, m.joined_ns as to_ns,
       least(m.joined_ns, m.started_ns + c.settle_ns) as at_latest_ns
from (
    select m.world, m.cell, m.client, m.started_ns, coalesce(min(a.started_ns), m.ended_ns) as joined_ns
    from member m
    left join assignments a on a.world = m.world and a.client = m.client
    group by m.world, m.cell, m.client, m.started_ns, m.ended_ns
) m
join fact_cells c on c.world = m.world and c.cell = m.cell
union all
select world, cell, from_ns, to_ns, to_ns from other_comings

--- view calm
-- Calms in which a member has not come before its first callback.
{calms(to_ns)}

--- anomaly two-owners
with sure as ({overlaps(sure_ns)}),
believed as (
    {overlaps(until_ns)}
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
        on c.partition = l.partition and c.outcome = {OK} and c.completed_ns != {MISSING}
        and c.invoked_ns >= l.begin_ns and c.completed_ns <= e.until_ns
    group by p.for_certain, l.partition, l.number, e.number, l.client, l.begin_ns, l.until_ns, e.until_ns,
             e.client, e.begin_ns, f.twins, l.planned, e.planned
)
select partition, reader, begin_ns, end_ns, other_client, other_ns,
       case when both then {GroupCase.BOTH_COMMITTED}
            when twins then {GroupCase.SAME_INSTANCE} else {GroupCase.NO_CAUSE} end as case
from judged where for_certain or both

--- anomaly orphaned
with drained as (
    select f.world, f.cell, f.partition, max(o.time_ns) as begin_ns
    from observations o
    join fact_partitions f on f.partition = o.partition
    where o.kind = {ObservationKind.DRAIN_BEGUN} group by f.world, f.cell, f.partition
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
       coalesce(o.client, {NONE}) as other_client,
       case when j.end_ns - o.until_ns >= c.session_ns then {GroupCase.NO_CAUSE}
            when o.crashed then {GroupCase.WITHIN_SESSION}
            when c.joint and w.ended_ns > j.end_ns - c.session_ns then {GroupCase.WAITED_FOR}
            when g.client is not null then {GroupCase.GAVE_UP} else {GroupCase.NO_CAUSE} end as case
from judged j
join fact_cells c on c.world = j.world and c.cell = j.cell
left join last_owner o on o.partition = j.partition
left join (
    select j.partition, max(m.ended_ns) as ended_ns
    from judged j
    join member m on m.world = j.world and m.cell = j.cell and m.ended_ns <= j.end_ns
    join fact_cells c on c.world = j.world and c.cell = j.cell and (m.crashed or c.stays)
    group by j.partition
) w on w.partition = j.partition
left join (select distinct partition, client, started_ns from assignments where event = {LOST}) g
    on g.partition = o.partition and g.client = o.client and g.started_ns = o.until_ns
left anti join owned a on a.partition = j.partition and a.begin_ns <= j.end_ns and a.until_ns >= j.end_ns

--- anomaly unstable
with judged as (
    select f.partition, m.*, c.settle_ns + c.evicted_after_ns as excused_ns
    from calm m
    join fact_partitions f on f.world = m.world and f.cell = m.cell
    join fact_cells c on c.world = m.world and c.cell = m.cell
)
select j.partition, o.client as reader, coalesce(b.client, {NONE}) as other_client,
       o.begin_ns - j.excused_ns as begin_ns, o.begin_ns as end_ns, j.since_ns as other_ns,
       {GroupCase.REASSIGNED} as case
from judged j
join owned o on o.partition = j.partition and o.begin_ns > j.settled_ns and o.begin_ns < j.until_ns
left join owned b on b.partition = o.partition and b.number = o.number - 1
union all
select j.partition, {NONE}, coalesce(max_by(e.client, e.number), {NONE}), j.until_ns - j.excused_ns, j.until_ns,
       j.since_ns, {GroupCase.UNOWNED}
from judged j
left anti join owned a
    on a.partition = j.partition and a.begin_ns < j.until_ns and a.until_ns > j.settled_ns
left join owned e on e.partition = j.partition and e.begin_ns < j.until_ns
group by j.partition, j.until_ns, j.excused_ns, j.since_ns

--- anomaly starved
with calm_turn as (
    select k.world, k.cell, k.since_ns, k.until_ns, c.settle_ns, c.settle_ns + c.evicted_after_ns as turn_ns,
           explode(sequence(k.settled_ns, k.until_ns - 1, c.settle_ns + c.evicted_after_ns)) as at_ns
    from ({calms(at_latest_ns)}) k
    join fact_cells c on c.world = k.world and c.cell = k.cell
),
there as (
    select t.*, m.client from calm_turn t
    join member m on m.world = t.world and m.cell = t.cell and m.started_ns <= t.since_ns and m.ended_ns >= t.until_ns
    left anti join assignments a
        on a.world = m.world and a.client = m.client and a.event = {CLOSE} and a.started_ns <= t.at_ns
),
holder as (
    select t.world, t.cell, t.at_ns, t.client, f.derived, count(*) as held, max(f.partition) as partition
    from there t
    join fact_partitions f on f.world = t.world and f.cell = t.cell and not f.late
    join owned o on o.partition = f.partition and o.client = t.client and o.begin_ns <= t.at_ns and o.until_ns > t.at_ns
    group by t.world, t.cell, t.at_ns, t.client, f.derived having count(*) >= 2
),
greatest_holder as (
    select *, row_number() over (partition by world, cell, at_ns order by held desc, client, derived) as place
    from holder
)
select h.partition, t.client as reader, h.client as other_client, t.at_ns - t.turn_ns as begin_ns, t.at_ns as end_ns,
       t.since_ns as other_ns,
       if(a.first_ns <= t.at_ns, {GroupCase.IDLE}, {GroupCase.UNASSIGNED}) as case
from there t
join greatest_holder h on h.world = t.world and h.cell = t.cell and h.at_ns = t.at_ns and h.place = 1
left join (select world, client, min(started_ns) as first_ns from assignments group by world, client) a
    on a.world = t.world and a.client = t.client
left anti join owned o on o.world = t.world and o.cell = t.cell and o.client = t.client
    and o.begin_ns <= t.at_ns and o.until_ns > t.at_ns - t.settle_ns
