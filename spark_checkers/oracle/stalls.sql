-- Readers that receive nothing, and last stable offsets that do not move.

--- fragment series(name)
-- A metric of partitions, as a series in time.
select partition, time_ns, row, value_micro div {MICRO} as value
from metrics where metric = {metric.{name}} and partition != {NONE} and absent = 0

--- view holding
-- Until when each record of a transaction may have held back what stands behind it; offset NONE: anything.
select s.partition, s.log_offset,
       case when x.completed_ns != {MISSING} and x.outcome != {INFO}
            then least(x.completed_ns, x.begun_ns + c.transaction_ns) else x.begun_ns + c.transaction_ns end
           as until_ns
from sent s
join transactions x on x.world = s.world and x.client = s.client and x.transaction = s.transaction
join fact_cells c on c.world = s.world and c.cell = s.cell and c.transaction_ns is not null
where s.transaction != {NONE} and (s.outcome != {FAIL} or x.outcome = {FAIL})

--- view reading
-- Each reader of each partition that it was assigned.
select r.world, r.cell, r.client, r.level, p.partition, min(p.time_ns) as begin_ns,
       case when k.ended_ns != {MISSING} then k.ended_ns else h.last_ns end as end_ns
from fact_readers r
join clients k on k.world = r.world and k.client = r.client
join (select world, client, max(time_ns) as last_ns from heartbeats group by world, client) h
    on h.world = r.world and h.client = r.client
join fact_partitions f on f.world = r.world and f.cell = r.cell
join positions p on p.partition = f.partition and p.client = r.client and p.event = {ASSIGNED}
group by r.world, r.cell, r.client, r.level, p.partition, k.ended_ns, h.last_ns

--- view kept_event
-- What changed who reads a partition: rows of `positions` (place 0) and of `assignments` (1) of clients of which rows say
-- when they were asked. A client that is no member gives up what it had when it assigns itself something else. A member of
-- ours says of a reset only once it was given the next record, which says as much.
with held as (
    select distinct d.world, d.cell, d.client, d.level, d.bound_ns, d.asked, d.ours, p.partition
    from fact_driven d
    join fact_partitions f on f.world = d.world and f.cell = d.cell
    join positions p on p.partition = f.partition and p.client = d.client
    left anti join (select distinct partition from reads where (flags & {ANONYMOUS}) != 0) o
        on o.partition = p.partition and d.level = {COMMITTED}
)
select h.*, p.time_ns, 0 as place, p.row, p.event, p.log_offset
from held h
join positions p on p.client = h.client and p.partition = h.partition and not (h.ours and p.event = 3)
union all
select h.*, p.time_ns, 0, p.row, {NONE}, {NONE}
from held h
join positions p on p.world = h.world and p.client = h.client and p.partition != h.partition
    and p.event = {ASSIGNED} and not h.ours
left anti join assignments a on a.world = h.world and a.client = h.client
union all
select h.*, a.started_ns, 1, a.row, {NONE}, {NONE}
from held h join assignments a on a.world = h.world and a.client = h.client
    and a.partition in (h.partition, {NONE}) and a.event != 1

--- view untouched
-- Partitions of which no member of a group was ever given anything, and for which none committed anything: the group's first
-- position is the log start.
select f.world, f.partition
from fact_partitions f
join fact_cells c on c.world = f.world and c.cell = f.cell and c.reset = 'earliest' and coalesce(c.life, 0) = 0
left anti join (
    select r.partition from reads r left semi join clients m on m.client = r.client and m.role = {MEMBER}
    union all
    select partition from commits where outcome != {FAIL}
    union all
    select partition from observations where kind = {ObservationKind.COMMITTED} and value >= 0
) t on t.partition = f.partition

--- view kept_while
-- When such a client had a partition, and neither sought nor paused, and where it began; NONE: nobody knows.
select k.world, cell, client, level, bound_ns, asked, ours, k.partition, time_ns as begin_ns, next_ns as end_ns, row,
       case when event = {ASSIGNED} and not ours then {NONE}
            when log_offset = {NONE} and ours and u.partition is not null then 0
            else log_offset end as next_offset
from (
    select c.*, coalesce(
               lead(c.time_ns) over (partition by c.partition, c.client order by c.time_ns, c.place, c.row),
               case when k.ended_ns != {MISSING} then k.ended_ns else b.last_ns end
           ) as next_ns
    from kept_event c
    join clients k on k.world = c.world and k.client = c.client
    join (select world, client, max(time_ns) as last_ns from heartbeats group by world, client) b
        on b.world = c.world and b.client = c.client
) k
left join untouched u on u.world = k.world and u.partition = k.partition
where event in ({ASSIGNED}, 2, 5)

--- view wait
-- Stretches in which a reader received nothing, and how far it had got before.
select world, client, level, partition, {STALLED_NS}L as bound_ns, {ObservationKind.ASKED} as asked, time_ns, next_ns,
       reached, false as may_jump
from (
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
union all
select g.world, g.client, g.level, g.partition, g.bound_ns, g.asked, g.time_ns, g.next_ns, g.next_offset - 1,
       g.ours and coalesce(c.reset, 'earliest') != 'earliest'
from (
    select g.*, lead(g.time_ns) over (
               partition by g.partition, g.client, g.begin_ns, g.begun order by g.place, g.row
           ) as next_ns
    from (
        select h.*, h.row as begun, 0 as place, begin_ns as time_ns from kept_while h
        union all
        select h.world, h.cell, h.client, h.level, h.bound_ns, h.asked, h.ours, h.partition, h.begin_ns, h.end_ns, r.row,
               r.log_offset + 1, h.row, 1, r.read_ns
        from kept_while h
        join reads r on r.partition = h.partition and r.client = h.client and r.read_ns >= h.begin_ns
            and r.read_ns < h.end_ns
        union all
        select world, cell, client, level, bound_ns, asked, ours, partition, begin_ns, end_ns, row, {NONE}, row, 2, end_ns
        from kept_while
    ) g
) g
join fact_cells c on c.world = g.world and c.cell = g.cell
where g.next_offset != {NONE} and g.next_ns - g.time_ns >= g.bound_ns

--- view certain
-- Since when each record, or a later one of its log, was certainly there for everybody. From the end backwards: Spark
-- goes through a window that ends there once for every row.
select partition, level, log_offset, sender, sequence,
       min(since_ns) over (
           partition by partition, level order by log_offset desc rows between unbounded preceding and current row
       ) as since_ns
from (
    select l.*,
           case when s.outcome = {OK} and s.acks != 0 then least(l.read_ns, s.completed_ns) else l.read_ns end
               as since_ns
    from log l
    left semi join wait w on w.partition = l.partition and w.level = l.level
    left join sent s
        on s.partition = l.partition and s.client = l.sender and s.sequence = l.sequence and not l.unreadable
)

--- fragment stable_from
-- From when leaders reported a last stable offset above what is wanted, if at first they reported none.
case when min_by(s.value, struct(s.time_ns, s.row)) <= u.log_offset
     then coalesce(min(if(s.value > u.log_offset, s.time_ns, null)), max(s.time_ns)) else u.begin_ns end

--- view stable_report
-- The last stable offsets that leaders reported.
{series(last_stable_offset)}

--- view unread
-- What they were waiting for: the first record beyond that, and since when it was there to be read.
select u.world, u.client, u.level, u.partition, u.bound_ns, u.asked, u.first.log_offset, u.first.sender, u.first.sequence,
       u.next_ns as end_ns, greatest(u.time_ns, u.first.since_ns, max(h.until_ns)) as begin_ns
from (
    select w.world, w.client, w.level, w.partition, w.bound_ns, w.asked, w.time_ns, w.next_ns,
           min(struct(r.log_offset, r.sender, r.sequence, r.since_ns)) as first
    from wait w
    join certain r on r.partition = w.partition and r.level = w.level and r.log_offset > w.reached
    left join (select partition, level, min(log_offset) as first from certain group by partition, level) b
        on b.partition = w.partition and b.level = w.level
    where not (w.may_jump and w.reached + 1 < b.first)
    group by w.world, w.client, w.level, w.partition, w.bound_ns, w.asked, w.time_ns, w.next_ns
) u
left join holding h
    on h.partition = u.partition and u.level = {COMMITTED}
    and (h.log_offset <= u.first.log_offset or h.log_offset = {NONE})
group by u.world, u.client, u.level, u.partition, u.bound_ns, u.asked, u.first, u.time_ns, u.next_ns

--- anomaly stalled
with stretch_asked as (
    select u.world, u.client, u.level, u.partition, u.bound_ns, u.log_offset, u.sender, u.sequence,
           greatest(u.begin_ns, a.begin_ns) as begin_ns, least(u.end_ns, a.end_ns) as end_ns
    from unread u
    join (
        select distinct world, client, kind, begin_ns, end_ns from fact_asked
    ) a on a.world = u.world and a.client = u.client and a.kind = u.asked
    where least(u.end_ns, a.end_ns) - greatest(u.begin_ns, a.begin_ns) >= u.bound_ns
),
stretch as (
    -- What stands still is the last stable offset, as long as leaders report none above what the reader wants.
    select u.world, u.client, u.partition, u.bound_ns, u.log_offset, u.sender, u.sequence, u.end_ns,
           {stable_from} as begin_ns
    from stretch_asked u
    left join stable_report s
        on s.partition = u.partition and u.level = {COMMITTED} and s.time_ns >= u.begin_ns and s.time_ns < u.end_ns
    group by u.world, u.client, u.partition, u.bound_ns, u.log_offset, u.sender, u.sequence, u.begin_ns, u.end_ns
    having u.end_ns - {stable_from} >= u.bound_ns
),
{longest_awake},
high as ({series(high_watermark)}),
still as (
    select partition, value, min(time_ns) as from_ns, max(time_ns) as to_ns
    from (
        select *, sum(moved) over (partition by partition order by time_ns, row) as island from (
            select *, case when value = lag(value) over (partition by partition order by time_ns, row)
                      then 0 else 1 end as moved
            from stable_report
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
    left join holding h on h.partition = a.partition and (h.log_offset <= a.value or h.log_offset = {NONE})
    group by a.partition, a.value, a.from_ns, a.to_ns
)
select u.partition, u.sender as client, u.sequence, u.log_offset, u.client as reader,
       case when l.alive.to_ns - l.alive.from_ns >= u.bound_ns then l.alive.from_ns else u.begin_ns end
           as begin_ns,
       case when l.alive.to_ns - l.alive.from_ns >= u.bound_ns then l.alive.to_ns else u.end_ns end as end_ns,
       case when l.alive.to_ns - l.alive.from_ns >= u.bound_ns
            then {StallCase.READER} else {StallCase.STARVED} end as case
from stretch u
join longest l on l.partition = u.partition and l.client = u.client and l.begin_ns = u.begin_ns
union all
select partition, {NONE}, {NONE}, value, {NONE}, from_ns, to_ns, {StallCase.STABLE_OFFSET}
from held where to_ns - from_ns >= {STALLED_NS}L
