-- What consumers received, and the texts of the log that are other ones where nobody audited.
--
-- `unseen` is a fact: acknowledged records of which nobody can say that a consumer missed them.

--- view consumed
-- What consumers received, and how far they read.
select distinct partition, sender, sequence from given where not by_audit and not unreadable

--- view consumed_committed
select distinct partition, sender, sequence
from given where not by_audit and not unreadable and isolation = {COMMITTED}

--- view reach
select partition, max(log_offset) as furthest,
       max(case when isolation = {COMMITTED} then log_offset end) as furthest_committed
from given where not by_audit group by partition

--- view reach_of_client
-- A reach: a span, and those in which its client went on.
with spans as (
    select partition, client, span, any_value(isolation) as isolation, max(log_offset) as furthest,
           min(if((flags & {FROM_START}) != 0, {NONE}, log_offset)) as first,
           1 - max(if((flags & {GOES_ON}) != 0, 1, 0)) as begins
    from given where not by_audit group by partition, client, span
),
numbered as (
    select *, sum(begins) over (partition by partition, client order by span) as reach from spans
)
select partition, client, any_value(isolation) as isolation, min(first) as first, max(furthest) as furthest
from numbered group by partition, client, reach

--- view within_reach
-- What stands between two records of one reach, where a consumer may have begun anywhere. `level`: of the consumer.
select distinct s.partition, s.client, s.sequence, r.isolation as level
from sent s
join fact_partitions p on p.partition = s.partition and p.readers_begin != 'start'
join reach_of_client r on r.partition = s.partition and r.first < s.log_offset and r.furthest > s.log_offset
where s.log_offset != {NONE}

--- view within_span
select distinct partition, client, sequence from within_reach

--- view ungiven
-- Acknowledged (or proven by their transaction), and received by no consumer. `passed`: one read beyond.
select s.partition, s.client, s.sequence,
       o.client is not null or (
           s.log_offset != {NONE}
           and case when p.readers_begin = 'anywhere' then b.client is not null
                    else coalesce(s.log_offset <= r.furthest, false) end
       ) as passed
from sent s
left join overtaken o on o.partition = s.partition and o.client = s.client and o.sequence = s.sequence
join fact_partitions p on p.partition = s.partition
left join reach r on r.partition = s.partition
left join within_span b on b.partition = s.partition and b.client = s.client and b.sequence = s.sequence
left join proven_transaction proven
    on proven.partition = s.partition and proven.client = s.client and proven.transaction = s.transaction
{cleaning(s)}
left anti join consumed c
    on c.partition = s.partition and c.sender = s.client and c.sequence = s.sequence
left anti join unconfirmed u
    on u.partition = s.partition and u.sender = s.client and u.sequence = s.sequence and s.outcome = {INFO}
where (s.outcome = {OK}
       or (s.outcome = {INFO} and s.transaction != {NONE} and proven.client is not null))
  and not {cleaned(s; s.size = {NONE})}

--- anomaly time-travel
-- What acks=1 acknowledged may stand in the log of a deposed leader alone.
{time_travel(
    (
        s.acks = -1 or exists (
            select 1 from consumed c
            where c.partition = s.partition and c.sender = s.client and c.sequence = s.sequence
        )
    );
    not g.by_audit
)}

--- anomaly corrupt
select distinct partition, log_offset, 0 as case from given where corrupt

--- anomaly lost
select partition, client, sequence from ungiven where passed

--- anomaly unseen
select partition, client, sequence from ungiven where not passed

--- anomaly resurrected
select s.partition, s.client, s.sequence
from sent s
join consumed c on c.partition = s.partition and c.sender = s.client and c.sequence = s.sequence
where s.outcome = {FAIL} and s.transaction = {NONE}
