-- The second opinion on progress: what a client waited for in vain, although it was awake.

--- fragment longest_awake
-- Common table expressions behind `stretch` (a client that waited from `begin_ns` to `end_ns`). `longest` has for each
-- stretch the longest part without a gap between heartbeats, `alive`.
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
               ) > {GAP_NS}L then 1 else 0 end as still
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

--- view call
-- What a client asked a transaction coordinator for, from when on, and until when it was not over. A fencer serves many
-- cells, with transactional.ids of each.
select x.world, c.cell, c.call_ns, x.client, x.transaction as sequence, p.partition,
       case when x.transaction = {NONE} then x.begun_ns else x.end_invoked_ns end as begin_ns,
       case when x.completed_ns != {MISSING} then x.completed_ns
            when k.ended_ns != {MISSING} then least(k.ended_ns, x.next_ns)
            else least(h.last_ns, x.next_ns) end as end_ns,
       case when x.transaction = {NONE} then {ProgressCase.INITIALISATION}
            when x.ended_by = 2 then {ProgressCase.ABORT} else {ProgressCase.COMMIT} end as case
from (
    select *, lead(begun_ns) over (partition by world, client order by begun_ns, row) as next_ns from transactions
) x
join clients k on k.world = x.world and k.client = x.client
join fact_serving s on s.world = x.world and s.client = x.client
join fact_cells c on c.world = s.world and c.cell = s.cell
join (select world, cell, min(partition) as partition from fact_partitions group by world, cell) p
    on p.world = c.world and p.cell = c.cell
left join fact_serving o on o.world = c.world and o.cell = c.cell and o.client = x.transactional_id
join (select world, client, max(time_ns) as last_ns from heartbeats group by world, client) h
    on h.world = x.world and h.client = x.client
where k.role != {SENTINEL_ROLE} or o.client is not null

--- view called
-- The longest part of each call that an application waited for, of those that lasted for the bound.
select world, cell, call_ns, client, sequence, partition, case, from_ns as begin_ns, to_ns as end_ns
from (
    select *, row_number() over (
               partition by partition, client, begin_ns, sequence order by to_ns - from_ns desc, from_ns
           ) as nth
    from (
        select c.*, greatest(c.begin_ns, a.begin_ns) as from_ns, least(c.end_ns, a.end_ns) as to_ns
        from call c
        join fact_asked a on a.world = c.world and a.cell = c.cell and a.client = c.client
            and a.kind = {ObservationKind.CALLED}
        where c.begin_ns != {MISSING}
    )
    where to_ns - from_ns >= call_ns
)
where nth = 1

--- view unended
-- Sends outside transactions that waited, of producers that were heard of, and until when.
select s.world, s.cell, c.acknowledgement_ns, s.partition, s.client, s.sequence, s.invoked_ns as begin_ns,
       case when s.completed_ns != {MISSING} then s.completed_ns
            when k.ended_ns != {MISSING} then k.ended_ns else h.last_ns end as end_ns
from sent s
join fact_cells c on c.world = s.world and c.cell = s.cell
join clients k on k.world = s.world and k.client = s.client and k.role = {PRODUCER}
join (select world, client, max(time_ns) as last_ns from heartbeats group by world, client) h
    on h.world = s.world and h.client = s.client
where s.transaction = {NONE} and s.invoked_ns > k.started_ns
  and (s.completed_ns = {MISSING} or s.completed_ns - s.invoked_ns
       >= case when s.outcome = {OK} then c.acknowledgement_ns else {LONG_NS}L end)

--- view awaiting_answer
-- When a producer had a send that waited, with pauses up to _LONG_NS.
select world, cell, acknowledgement_ns, partition, client, min(begin_ns) as begin_ns, max(end_ns) as end_ns
from (
    select *, sum(apart) over (partition by partition, client order by begin_ns, sequence) as island
    from (
        select *, case when begin_ns - max(end_ns) over (
                   partition by partition, client order by begin_ns, sequence
                   rows between unbounded preceding and 1 preceding
               ) > {LONG_NS}L then 1 else 0 end as apart
        from unended where end_ns >= begin_ns
    )
)
group by world, cell, acknowledgement_ns, partition, client, island

--- view unanswered
-- When no acknowledgement came to a producer that wanted one.
with claims as (
    select s.partition, s.client, s.completed_ns as time_ns
    from sent s join (select distinct partition, client from awaiting_answer) w
        on w.partition = s.partition and w.client = s.client
    where s.transaction = {NONE} and s.outcome = {OK} and s.completed_ns != {MISSING}
    union all
    select distinct partition, client, -{FAR}L from awaiting_answer
)
select partition, client, time_ns as since_ns, coalesce(
           lead(time_ns) over (partition by partition, client order by time_ns), {FAR}L
       ) as until_ns
from claims

--- anomaly hanging
with stretch as (
    select * from called
),
{longest_awake}
select w.partition, w.client, w.sequence,
       case when l.alive.to_ns - l.alive.from_ns >= w.call_ns then l.alive.from_ns else w.begin_ns end
           as begin_ns,
       case when l.alive.to_ns - l.alive.from_ns >= w.call_ns then l.alive.to_ns else w.end_ns end as end_ns,
       case when l.alive.to_ns - l.alive.from_ns >= w.call_ns then w.case
            else {ProgressCase.STOOD_STILL} end as case
from stretch w
join longest l on l.partition = w.partition and l.client = w.client and l.begin_ns = w.begin_ns

--- anomaly stuck
with stretch as (
    select w.world, w.acknowledgement_ns, w.partition, w.client,
           greatest(w.begin_ns, s.since_ns, a.begin_ns) as begin_ns, least(w.end_ns, s.until_ns, a.end_ns) as end_ns
    from awaiting_answer w
    join unanswered s on s.partition = w.partition and s.client = w.client
    join fact_asked a on a.world = w.world and a.cell = w.cell and a.client = w.client
        and a.kind = {ObservationKind.ASKED}
    where least(w.end_ns, s.until_ns, a.end_ns) - greatest(w.begin_ns, s.since_ns, a.begin_ns)
          >= w.acknowledgement_ns
),
{longest_awake}
select t.partition, t.client, t.sequence,
       case when l.alive.to_ns - l.alive.from_ns >= t.bound_ns then l.alive.from_ns else t.begin_ns end as begin_ns,
       case when l.alive.to_ns - l.alive.from_ns >= t.bound_ns then l.alive.to_ns else t.end_ns end as end_ns,
       case when l.alive.to_ns - l.alive.from_ns >= t.bound_ns then {ProgressCase.ACKNOWLEDGEMENT}
            else {ProgressCase.STOOD_STILL} end as case
from (
    select x.partition, x.client, x.begin_ns, x.end_ns, max(x.acknowledgement_ns) as bound_ns,
           min(v.sequence) as sequence
    from stretch x
    join unended v on v.partition = x.partition and v.client = x.client and v.end_ns > x.begin_ns
        and v.begin_ns < x.end_ns
    group by x.partition, x.client, x.begin_ns, x.end_ns
) t
join longest l on l.partition = t.partition and l.client = t.client and l.begin_ns = t.begin_ns

--- anomaly unanswered
-- Who asked is the process that records the trial.
with stretch as (
    select k.world, c.admin_call_ns, p.partition, {RECORDER} as client, k.node as reader, k.begin_ns,
           k.begin_ns + k.lasted_ns as end_ns
    from fact_calls k
    join fact_cells c on c.world = k.world and c.cell = k.cell
    join (select world, cell, min(partition) as partition from fact_partitions group by world, cell) p
        on p.world = c.world and p.cell = c.cell
    where k.lasted_ns >= c.admin_call_ns
),
{longest_awake}
select partition, reader, if(awake, alive.from_ns, begin_ns) as begin_ns, if(awake, alive.to_ns, end_ns) as end_ns,
       case when not awake then {ProgressCase.STOOD_STILL}
            when reader = {NONE} then {ProgressCase.CONTROLLER_CALL}
            else {ProgressCase.BROKER_CALL} end as case
from (
    select w.*, l.alive, l.alive.to_ns - l.alive.from_ns >= w.admin_call_ns as awake
    from stretch w
    join longest l on l.partition = w.partition and l.client = w.client and l.begin_ns = w.begin_ns
)

--- view administered
-- What each administrator's call shows: its value was there at some moment from `from_ns` to `to_ns`. That a name has no topic
-- is true again and again, so each such answer has a name of its own.
select world, topic, setting, value, node, row, invoked_ns, operation = {AdminOperation.FOUND} as found,
       outcome = {OK} as done, if(value = 0, -2 - row, value) as name,
       if(node != {NONE} and operation = {AdminOperation.FOUND}, {ADMIN_LAG_NS}L, 0L) as lag_ns,
       invoked_ns - if(node != {NONE} and operation = {AdminOperation.FOUND}, {ADMIN_LAG_NS}L, 0L) as from_ns,
       if(outcome = {OK}, completed_ns, {FAR}L) as to_ns
from admin_operations

--- view administered_values
-- When each value was certainly there, and when it was set. A call without an answer may have made the topic that nobody made.
with made as (
    select world, topic, setting, min(invoked_ns) as made_ns
    from administered where not found and value = {NONE} group by world, topic, setting
),
named as (
    select world, topic, setting, name, min(to_ns) as first_end, max(from_ns) as last_begin,
           min(if(found, null, invoked_ns)) as set_ns, max(if(found, null, to_ns)) as set_until
    from administered group by world, topic, setting, name
)
select n.world, n.topic, n.setting, n.name, n.first_end, least(n.last_begin, n.first_end) as low,
       coalesce(n.set_ns, if(n.name > 0 and m.made_ns <= n.first_end, m.made_ns, null)) as set_ns,
       coalesce(n.set_until, {FAR}L) as set_until
from named n left join made m on m.world = n.world and m.topic = n.topic and m.setting = n.setting

--- anomaly not-linearizable
with other as (
    select * from administered_values
    where name != {NONE} and first_end < {FAR}L and (set_ns is not null or name < {NONE})
),
answers as (
    select a.world, a.topic, a.setting, a.name, a.value, a.row, a.node, a.invoked_ns, a.to_ns, a.lag_ns,
           max(struct(w.low as low, -w.first_end as ends)) as last
    from administered a
    left join other w on w.world = a.world and w.topic = a.topic and w.setting = a.setting and w.first_end < a.from_ns
    where a.found and a.done and a.value != 0
    group by a.world, a.topic, a.setting, a.name, a.value, a.row, a.node, a.invoked_ns, a.to_ns, a.lag_ns
),
known as (
    select a.*, case when v.set_ns is null then {AdminCase.UNSET} when a.to_ns < v.set_ns then {AdminCase.EARLY}
                     when a.last.low > v.first_end and v.set_until >= a.last.low then {AdminCase.AGAIN}
                     when a.last.low > v.first_end then {AdminCase.STALE} end as case
    from answers a
    join administered_values v on v.world = a.world and v.topic = a.topic and v.setting = a.setting and v.name = a.name
    where a.name > {NONE}
),
nameless as (
    select a.*, {AdminCase.STALE} as case from (
        select a.row, a.world, max(if(v.name > 0, v.first_end, null)) as until_ns
        from answers a
        left join administered_values v on v.world = a.world and v.topic = a.topic and v.setting = a.setting
            and v.set_ns <= a.to_ns
        where a.name = {NONE} group by a.row, a.world
    ) t join answers a on a.row = t.row and a.world = t.world
    where a.last.low > coalesce(t.until_ns, -{FAR}L) and not exists (
        select 1 from administered u where u.world = a.world and u.topic = a.topic and u.setting = a.setting
            and not u.found and u.value = {NONE} and u.invoked_ns <= a.to_ns
    )
)
select p.partition, f.value as sequence, if(f.node < {FIRST_CONTROLLER_ID}, f.node, {NONE}) as reader,
       if(f.case in ({AdminCase.UNSET}, {AdminCase.EARLY}), f.invoked_ns, -f.last.ends) as begin_ns, f.invoked_ns as end_ns,
       f.case
from (select * from known where case is not null union all select * from nameless) f
join (select world, cell, min(partition) as partition from fact_partitions group by world, cell) p on p.world = f.world
