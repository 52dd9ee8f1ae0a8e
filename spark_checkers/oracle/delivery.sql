-- Records that consumers receive too late, or never, where the trial states a bound.
--
-- What became of a record at a recipient is OPEN, UNMEASURED, LATE or GONE, the least important first. A record that was
-- received in time has none of these.

--- view asleep
-- When a client's heart was silent.
select world, client, before_ns as from_ns, time_ns as to_ns from (
    select world, client, time_ns, lag(time_ns) over (partition by world, client order by time_ns) as before_ns
    from heartbeats
)
where time_ns - before_ns > {STILL_NS}L

--- view life
-- Everybody who had a place, one after the other or several at once. A client whose end was not recorded ended with its last heartbeat.
select p.world, p.place, k.client, k.row, k.started_ns,
       case when k.ended_ns != {MISSING} then k.ended_ns else coalesce(h.last_ns, k.started_ns) end as ended_ns,
       k.complete = 1 and k.exit_code = 0 as orderly
from fact_recipients p
join clients k on k.world = p.world and k.planned = p.planned and k.started_ns != {MISSING}
left join (select world, client, max(time_ns) as last_ns from heartbeats group by world, client) h
    on h.world = k.world and h.client = k.client

--- view place
-- When each place ended, and how whoever ended last did.
select d.world, d.place, d.partition, coalesce(max(l.ended_ns), (-{FAR}L)) as end_ns,
       coalesce(max_by(l.orderly, struct(l.ended_ns, -l.row)), false) as orderly,
       coalesce(max_by(l.client, l.row), {NONE}) as last_client
from fact_due d left join life l on l.world = d.world and l.place = d.place
group by d.world, d.place, d.partition

--- view absence
-- When one of a place stood still, and when nobody had it.
select l.world, l.place, s.from_ns, s.to_ns
from life l join asleep s on s.world = l.world and s.client = l.client
union all
select world, place, coalesce(until_ns, (-{FAR}L)), started_ns from (
    select *, max(ended_ns) over (
               partition by world, place order by started_ns, row rows between unbounded preceding and 1 preceding
           ) as until_ns
    from life
)
where until_ns is null or started_ns > until_ns

--- view handed_over
-- When each place was first given each record, and who of it was.
select l.place, g.partition, g.sender, g.sequence, min(struct(g.read_ns, g.row, g.client)) as first
from life l join given g on g.world = l.world and g.client = l.client
where not g.unreadable
group by l.place, g.partition, g.sender, g.sequence

--- view overdue
-- Acknowledged records of which a place was not given any copy in time. A group owes nothing from before it began.
select s.world, s.partition, s.row, s.client, s.sequence, s.log_offset, s.key, s.size, s.invoked_ns, s.completed_ns,
       c.bound_ns, p.place, p.end_ns, p.orderly, h.first.read_ns as seen_ns,
       coalesce(h.first.client, p.last_client) as reader
from sent s
join fact_cells c on c.world = s.world and c.cell = s.cell and c.bound_ns is not null
join place p on p.partition = s.partition
left join beginning b on b.partition = s.partition
left join handed_over h
    on h.place = p.place and h.partition = s.partition and h.sender = s.client and h.sequence = s.sequence
where s.outcome = {OK} and s.invoked_ns >= 0
  and (c.commit is null or (b.start is not null and (s.log_offset = {NONE} or s.log_offset >= b.start)))
  and (h.first is null or h.first.read_ns > s.invoked_ns + c.bound_ns)

--- view slept
-- For how much of the wait the place or the producer was not there to measure: of moments that are named twice, once.
select row, place, sum(greatest(0L, to_ns - greatest(from_ns, coalesce(reached_ns, from_ns)))) as slept_ns
from (
    select *, max(to_ns) over (
               partition by row, place order by from_ns, to_ns rows between unbounded preceding and 1 preceding
           ) as reached_ns
    from (
        select o.row, o.place, greatest(a.from_ns, o.invoked_ns) as from_ns,
               least(a.to_ns, o.end_ns, coalesce(o.seen_ns, {FOREVER})) as to_ns
        from overdue o
        join (
            select o.row, o.place, a.from_ns, a.to_ns
            from overdue o join absence a on a.world = o.world and a.place = o.place
            union all
            select o.row, o.place, s.from_ns, s.to_ns
            from overdue o join asleep s on s.world = o.world and s.client = o.client
        ) a on a.row = o.row and a.place = o.place and a.to_ns > o.invoked_ns
    )
)
group by row, place

--- anomaly late
with became as (
    select o.*, case
        when o.seen_ns is null and o.orderly and o.invoked_ns between o.end_ns - o.bound_ns + 1 and o.end_ns
            then {OPEN}
        when least(o.end_ns, coalesce(o.seen_ns, {FOREVER})) - o.invoked_ns - coalesce(s.slept_ns, 0L) <= o.bound_ns
            then {UNMEASURED}
        when o.seen_ns is null then {GONE} else {LATE} end as state
    from overdue o left join slept s on s.row = o.row and s.place = o.place
),
worst as (
    select partition, row, client, sequence, log_offset, key, size, invoked_ns, completed_ns, bound_ns,
           max(state) as state, bool_or(seen_ns is null) as gone, max(seen_ns) as seen_ns,
           max_by(reader, struct(state, coalesce(seen_ns, {FOREVER}), -place)) as reader
    from became
    group by partition, row, client, sequence, log_offset, key, size, invoked_ns, completed_ns, bound_ns
)
select w.partition, w.client, w.sequence, w.log_offset, w.reader, w.invoked_ns as begin_ns, w.completed_ns as end_ns,
       case when w.gone then {MISSING} else w.seen_ns end as seen_ns, w.invoked_ns + w.bound_ns as other_ns,
       case when w.state = {UNMEASURED} then {LateCase.STOOD_STILL}
            when w.state = {LATE} then {LateCase.LATE}
            when p.end_uncommitted is null or o.partition is not null then {LateCase.UNAUDITED}
            else {LateCase.MISSING} end as case
from worst w
join fact_partitions p on p.partition = w.partition
left join passed_over o on o.partition = w.partition
{cleaning(w)}
where w.state >= {UNMEASURED} and not (w.gone and {cleaned(w; w.size = {NONE})})
