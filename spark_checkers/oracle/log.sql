-- The second opinion on the log: one text for each anomaly.
--
-- The columns of a text are those columns of the witnesses that name what was found.

--- fragment time_travel(there; reader)
-- `there`: a record of `s` is certainly in the log that consumers read; `reader`: a read of `g` is somebody's own.
with standing as (
    select s.*, f.log_offset as stands_at, f.position, p.compacted or p.log_start > 0 as cleaning, {there} as there
    from sent s
    join first_copy f
        on f.partition = s.partition and f.level = {UNCOMMITTED} and f.sender = s.client
        and f.sequence = s.sequence
    join fact_partitions p on p.partition = s.partition
    where s.clock != {NONE}
),
timed as (
    select g.partition, g.sender, g.sequence, g.log_offset, g.read_ns, c.clock
    from given g
    join fact_clients c on c.world = g.world and c.client = g.client
    where c.clock != {NONE} and not g.unreadable and {reader}
),
in_order as (
    select t.*, max(invoked_ns) over (
               partition by partition, clock order by position range between unbounded preceding and current row
           ) as newest
    from (
        select partition, clock, position, null as sender, null as sequence, null as log_offset, null as read_ns,
               case when there then invoked_ns end as invoked_ns
        from standing
        union all
        select r.partition, r.clock, l.position, r.sender, r.sequence, r.log_offset, r.read_ns, null
        from timed r
        join log l on l.partition = r.partition and l.level = {UNCOMMITTED} and l.log_offset = r.log_offset
            and l.sender = r.sender and l.sequence = r.sequence and not l.unreadable
    ) t
)
select partition, client, sequence, stands_at as log_offset from (
    select s.*, max(s.invoked_ns) over (
               partition by s.partition, s.clock order by s.position
               rows between unbounded preceding and 1 preceding
           ) as newest_before
    from standing s
)
where outcome = {OK} and acks != 0 and completed_ns != {MISSING} and completed_ns < newest_before
  and (not cleaning or log_offset = stands_at)
union
select partition, sender, sequence, log_offset from in_order where read_ns < newest
union
select r.partition, r.sender, r.sequence, r.log_offset
from timed r
join sent s on s.partition = r.partition and s.client = r.sender and s.sequence = r.sequence and s.clock = r.clock
where r.read_ns < s.invoked_ns

--- view unreadable_log
select distinct partition from log where level = {UNCOMMITTED} and unreadable

--- view proven_transaction
-- A commit in doubt is proven by any record of it that somebody at read_committed received.
select distinct s.partition, s.client, s.transaction
from sent s
join given g on g.partition = s.partition and g.sender = s.client and g.sequence = s.sequence
where s.transaction != {NONE} and g.isolation = {COMMITTED} and not g.unreadable

--- view absent_send
-- Sends that may have been acknowledged, and are not in L. Nearly all are: what follows looks at the few others.
select s.* from sent s
left anti join first_copy f
    on f.partition = s.partition and f.level = {UNCOMMITTED} and f.sender = s.client and f.sequence = s.sequence
where s.outcome = {OK} or (s.outcome = {INFO} and s.transaction != {NONE})

--- view overtaken
-- Acknowledged without an offset, before a record was sent that stands where consumers received every offset from 0 on, of one
-- leader's epoch, and the audit none of another, up to what the audit read of that one.
with received as (select * from given where not by_audit),
offsets as (
    select partition, log_offset, row_number() over (partition by partition order by log_offset) - 1 as number
    from (select distinct partition, log_offset from received)
),
begins as (select partition, max(leader_epoch) as epoch from received where log_offset = 0 group by partition),
others as (
    select g.partition, min(case when g.leader_epoch != b.epoch or g.leader_epoch = {NONE} then g.log_offset end) as first,
           max(case when g.by_audit and g.leader_epoch = b.epoch then g.log_offset + 1 end) as confirmed
    from given g
    join begins b on b.partition = g.partition
    join fact_partitions p on p.partition = g.partition
    where not g.by_audit or p.end_uncommitted is not null
    group by g.partition
),
whole as (
    select f.partition,
           least(count_if(f.log_offset = f.number), any_value(o.first),
                 any_value(case when p.end_uncommitted is not null then coalesce(o.confirmed, 0) end)) as until
    from offsets f
    join fact_partitions p on p.partition = f.partition
    left join others o on o.partition = f.partition
    group by f.partition
),
last as (
    select g.partition, max(s.invoked_ns) as sent_ns
    from received g
    join whole w on w.partition = g.partition and g.log_offset < w.until
    left join sent s on s.partition = g.partition and s.client = g.sender and s.sequence = g.sequence
    group by g.partition
    having not max(g.unreadable)
),
clocks as (select partition, min(clock) as first_clock, max(clock) as last_clock from sent group by partition)
select s.partition, s.client, s.sequence
from sent s
join clocks k on k.partition = s.partition and k.first_clock = k.last_clock and k.first_clock != {NONE}
join last on last.partition = s.partition and s.completed_ns < last.sent_ns
join whole w on w.partition = s.partition
left join received g
    on g.partition = s.partition and g.sender = s.client and g.sequence = s.sequence and not g.unreadable
where g.client is null and s.log_offset = {NONE} and s.outcome = {OK} and s.acks != 0 and s.completed_ns != {MISSING}

--- view missing_send
-- Acknowledged (or proven by their transaction) and not in L.
select s.*,
       v.client is null and (
           {cleaned(s; s.size = {NONE})}
           or (c.partition is not null and (s.log_offset = {NONE} or coalesce(l.unreadable, false)))
       ) as maybe
from absent_send s
left join overtaken v on v.partition = s.partition and v.client = s.client and v.sequence = s.sequence
join fact_partitions p on p.partition = s.partition and p.end_uncommitted is not null
left anti join passed_over o on o.partition = s.partition
left join sentinel e on e.partition = s.partition
left join proven_transaction proven
    on proven.partition = s.partition and proven.client = s.client and proven.transaction = s.transaction
left join unreadable_log c on c.partition = s.partition
left join log l on l.partition = s.partition and l.level = {UNCOMMITTED} and l.log_offset = s.log_offset
{cleaning(s)}
left anti join unconfirmed u
    on u.partition = s.partition and u.sender = s.client and u.sequence = s.sequence and s.outcome = {INFO}
    and u.isolation = {COMMITTED}
left anti join straggler b on b.partition = s.partition and b.sender = s.client and b.sequence = s.sequence
where (s.outcome = {OK}
       or (s.outcome = {INFO} and s.transaction != {NONE} and proven.client is not null))
  and not (e.sentinel_ns is not null and s.completed_ns >= e.sentinel_ns
           and (s.log_offset = {NONE} or s.log_offset > p.end_uncommitted))

--- view missing_read
-- Received by somebody, and not in L, although L reaches so far.
select distinct u.partition, u.sender as client, u.sequence
from unconfirmed u
join fact_partitions p on p.partition = u.partition and p.end_uncommitted is not null
left anti join passed_over o on o.partition = u.partition
left join sentinel e on e.partition = u.partition
left join sent s on s.partition = u.partition and s.client = u.sender and s.sequence = u.sequence
left join missing_send d on d.partition = u.partition and d.client = u.sender and d.sequence = u.sequence
{cleaning(u)}
left anti join first_copy f
    on f.partition = u.partition and f.level = {UNCOMMITTED} and f.sender = u.sender and f.sequence = u.sequence
left anti join straggler b on b.partition = u.partition and b.sender = u.sender and b.sequence = u.sequence
left anti join never_issued n on n.partition = u.partition and n.sender = u.sender and n.sequence = u.sequence
where (u.log_offset <= p.end_uncommitted or coalesce(u.read_ns < e.sentinel_ns, false))
  and (u.sent_partition = u.partition or u.sent_partition = {NONE})
  and (s.client is null or s.outcome = {INFO} or coalesce(d.maybe and d.log_offset = {NONE}, false))
  and (coalesce(s.transaction, {NONE}) = {NONE} or u.isolation = {COMMITTED}
       or coalesce(d.maybe and d.log_offset = {NONE}, false))
  and not u.unreadable_there
  and not {cleaned(u; coalesce(s.size = {NONE}, false))}

--- anomaly lost
select partition, client, sequence from missing_send where not maybe
union
select partition, client, sequence from missing_read

--- anomaly duplicate
with repeated as (
    select * from first_copy where level = {UNCOMMITTED} and copies > 1
),
copies as (
    select l.*, coalesce(s.transaction, {NONE}) != {NONE} as transactional
    from log l
    left semi join repeated r
        on r.partition = l.partition and r.sender = l.sender and r.sequence = l.sequence
    left join sent s on s.partition = l.partition and s.client = l.sender and s.sequence = l.sequence
    where l.level = {UNCOMMITTED} and not l.unreadable
),
standing as (
    select c.* from copies c where not c.transactional
    union all
    select c.* from copies c
    join log v on v.partition = c.partition and v.level = {COMMITTED} and v.log_offset = c.log_offset
        and v.sender = c.sender and v.sequence = c.sequence and not v.unreadable
    where c.transactional
)
select partition, sender as client, sequence, log_offset
from (
    select *, row_number() over (partition by partition, sender, sequence order by log_offset) as copy
    from standing
)
where copy > 1

--- anomaly reordered
select partition, client, sequence, log_offset from (
    select l.partition, l.sender as client, l.sequence, l.log_offset,
           lag(l.sequence) over (partition by l.partition, l.sender order by l.position) as before
    from first_copy l
    left anti join never_issued n
        on n.partition = l.partition and n.sender = l.sender and n.sequence = l.sequence
    where l.level = {UNCOMMITTED}
      and (l.sent_partition = l.partition or l.sent_partition = {NONE})
)
where sequence < before

--- anomaly offset-conflict
with seen as (
    select partition, log_offset, sender, sequence from given where not unreadable
    union all
    select partition, log_offset, client, sequence
    from sent where outcome = {OK} and acks = -1 and log_offset != {NONE}
),
several as (
    select partition, log_offset from seen group by partition, log_offset
    having min(sender) != max(sender) or min(sequence) != max(sequence)
)
select partition, log_offset, explode(sequence(1, cast(records - 1 as int))) as conflict
from (
    select n.partition, n.log_offset, count(distinct n.sender, n.sequence) as records
    from seen n join several v on v.partition = n.partition and v.log_offset = n.log_offset
    group by n.partition, n.log_offset
)

--- anomaly phantom
select distinct g.partition, g.log_offset, g.sender as client, g.sequence
from given g
join never_issued n on n.partition = g.partition and n.sender = g.sender and n.sequence = g.sequence
where not g.unreadable

--- anomaly corrupt
select distinct partition, log_offset, 0 as case from given where corrupt
union all
select partition, log_offset, 1 from (
    select distinct g.partition, g.log_offset, g.sender, g.sequence
    from given g
    join sent s on s.partition = g.partition and s.client = g.sender and s.sequence = g.sequence and s.key != g.key
    join fact_clients c on c.world = s.world and c.client = s.client
    where not g.unreadable and (g.key != {NONE} or g.by_audit) and (s.key != {NONE} or c.reported_until_ns is not null)
)

--- anomaly misplaced
select distinct partition, log_offset, sender as client, sequence, sent_partition as case
from given where not unreadable and sent_partition != partition and sent_partition != {NONE}

--- anomaly invisible
with unshown as (
    select l.* from log l
    join fact_partitions p on p.partition = l.partition
    left anti join log v
        on v.partition = l.partition and v.level = {COMMITTED} and v.log_offset = l.log_offset
    where l.level = {UNCOMMITTED} and l.log_offset < p.end_committed
),
stored as (
    select u.partition, u.log_offset,
           bool_or((r.attributes & 16) != 0) as in_transaction, bool_or((r.attributes & 16) = 0) as outside
    from unshown u
    join fact_copies c on c.partition = u.partition
    join replicas r
        on r.partition = u.partition and r.node = c.node and r.step = {NONE} and r.base_offset <= u.log_offset
        and r.last_offset >= u.log_offset
    group by u.partition, u.log_offset
)
select u.partition, u.sender as client, u.sequence, u.log_offset
from unshown u
join fact_partitions p on p.partition = u.partition
left join sent s
    on s.partition = u.partition and s.client = u.sender and s.sequence = u.sequence and not u.unreadable
left join stored b on b.partition = u.partition and b.log_offset = u.log_offset
{cleaning(u)}
where not coalesce(b.in_transaction, false)
  and case when s.client is null then coalesce(b.outside, false) else s.transaction = {NONE} end
  and not (p.compacted and u.unreadable)
  and not {cleaned(u; coalesce(s.size = {NONE}, true))}

--- anomaly resurrected
select s.partition, s.client, s.sequence
from sent s
join first_copy f
    on f.partition = s.partition and f.level = {UNCOMMITTED} and f.sender = s.client and f.sequence = s.sequence
where s.outcome = {FAIL} and s.transaction = {NONE}

--- anomaly time-travel
{time_travel(true; true)}
