-- The second opinion on errors that producers get.

--- fragment provoked_send
-- A send of a cell whose workload provokes errors.
sent s
join fact_partitions f on f.partition = s.partition
join fact_cells c on c.world = f.world and c.cell = f.cell and c.workload = 'errors'

--- fragment bad
-- The record itself is to blame for its error.
(c.bad_every > 0 and s.sequence % c.bad_every = c.bad_every - 1)

--- anomaly unreported
-- Nobody was reported, or (acks=0) reported a success; cleaning may have taken it wherever it stood.
with unheard as (
    select s.partition, s.client, s.sequence, s.key, s.size, s.completed_ns, {NONE} as log_offset
    from sent s
    left anti join first_copy f
        on f.partition = s.partition and f.level = {UNCOMMITTED} and f.sender = s.client
        and f.sequence = s.sequence
    join fact_clients c on c.world = s.world and c.client = s.client
    where s.transaction = {NONE}
      and ((s.completed_ns = {MISSING} and s.invoked_ns < c.reported_until_ns)
           or (c.role = {PRODUCER} and s.acks = 0 and s.outcome = {OK}))
)
select s.partition, s.client, s.sequence
from unheard s
join fact_partitions p on p.partition = s.partition and p.end_uncommitted is not null
left anti join passed_over o on o.partition = s.partition
left join sentinel e on e.partition = s.partition
{cleaning(s)}
left anti join unreadable_log u on u.partition = s.partition
where (e.sentinel_ns is null or s.completed_ns < e.sentinel_ns)
  and not {cleaned(s; s.size = {NONE})}

--- anomaly unenforced
select s.partition, s.client, s.sequence
from {provoked_send}
join first_copy l
    on l.partition = s.partition and l.level = {UNCOMMITTED} and l.sender = s.client and l.sequence = s.sequence
where {bad}

--- anomaly collateral
select s.partition, s.client, s.sequence
from {provoked_send}
join fact_codes d on d.world = c.world and d.cell = c.cell and d.code = s.code
where c.bad_every > 0 and not {bad}
