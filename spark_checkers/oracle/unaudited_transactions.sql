-- The views and texts of transactions that are other ones where nobody audited.

--- view left_open
-- What a client was not reported an abort, it is not reported here either.
select world, cell, cast(null as bigint) as open_ns from fact_cells

--- view reads_until
-- It is not reported when its end was asked for, but when that was over.
select world, client, transaction, begun_ns, if(completed_ns = {MISSING}, {FOREVER}, completed_ns) as until_ns
from transactions where transaction != {NONE}

--- view queued
-- An acknowledgement says where a record of a transaction ought to stand. Whether it is shown, a consumer must say.
select s.*, v.sender is not null and c.sender is not null as shown
from transacted s
left join first_copy v
    on v.partition = s.partition and v.level = {COMMITTED} and v.sender = s.client and v.sequence = s.sequence
left join consumed_committed c
    on c.partition = s.partition and c.sender = s.client and c.sequence = s.sequence
where s.outcome != {FAIL} or s.became = {FAIL}

--- view record
select s.partition, s.world, s.client, s.sequence, s.transaction, s.shown,
       not s.shown and s.log_offset != {NONE}
       and case when p.readers_begin = 'start' then coalesce(s.log_offset <= r.furthest_committed, false)
                else b.client is not null end as missing
from queued s
join fact_partitions p on p.partition = s.partition
left join reach r on r.partition = s.partition
left join within_reach b
    on b.partition = s.partition and b.client = s.client and b.sequence = s.sequence and b.level = {COMMITTED}

--- anomaly own-read
-- A client does one thing at a time, and it is not reported when it asked for the end of its transaction.
select distinct h.partition, h.client, h.sequence, case when h.committed then 0 else 1 end as case
from showing h
join transactions x on x.world = h.world and x.client = h.client and x.transaction = h.transaction
left anti join transactions n
    on n.world = h.world and n.client = h.client and n.transaction > h.transaction and n.begun_ns <= h.read_ns
where h.reader = h.client and x.begun_ns <= h.read_ns
  and (x.completed_ns = {MISSING} or h.read_ns <= x.completed_ns)
