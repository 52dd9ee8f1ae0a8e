-- The second opinion on share groups: what members were given, acknowledged and were answered.

--- view delivery
-- Each delivery, and when its record was certainly not acquired yet.
select d.*, d.absent_ns - {SHARE_WAY_NS}L as since_ns from deliveries d

--- view finished_by
-- The first answer that a record was accepted or rejected, and to whom.
select * from (
    select partition, log_offset, sender, sequence, acknowledgement, client, answered_ns,
           row_number() over (
               partition by partition, log_offset, sender, sequence, acknowledgement order by answered_ns, acquired_ns, row
           ) as number
    from delivery where outcome = {OK} and acknowledgement in ({ACCEPT}, {REJECT})
)
where number = 1

--- view in_turn
-- Each delivery with the one of its record that was seen before.
select *, lag(client) over one_record as client_before, lag(acquired_ns) over one_record as acquired_before,
       lag(since_ns) over one_record as since_before, lag(delivery_count) over one_record as count_before,
       lag(answered_ns) over one_record as answered_before,
       lag(acknowledgement = {RELEASE} and outcome = {OK}) over one_record as released_before
from delivery
window one_record as (partition by partition, log_offset, sender, sequence order by acquired_ns, row)

--- view lived
-- When each client was last heard of.
select world, client, max(time_ns) as last_ns from heartbeats group by world, client

--- view lock_held
-- Deliveries that certainly held their record for a time, and until when. An acknowledgement of an earlier delivery to the same
-- member, which is still on its way, may end a hold.
select held.* from (
    select d.*, least(
               greatest(d.since_ns, d.renewed_ns) + c.lock_ns,
               case when d.acknowledged_ns = {MISSING} then {FAR}L else d.acknowledged_ns end,
               h.last_ns
           ) as until_ns
    from delivery d
    join fact_partitions p on p.partition = d.partition
    join fact_cells c on c.world = p.world and c.cell = p.cell
    join lived h on h.world = p.world and h.client = d.client
) held
left anti join delivery e
    on e.partition = held.partition and e.log_offset = held.log_offset and e.sender = held.sender
    and e.sequence = held.sequence and e.client = held.client and e.acknowledged_ns != {MISSING}
    and (e.acquired_ns < held.acquired_ns or e.acquired_ns = held.acquired_ns and e.row < held.row)
    and (e.answered_ns = {MISSING} or e.answered_ns > held.since_ns)
where held.acquired_ns < held.until_ns

--- view group_offsets
-- Below which offset a share group has finished everything: FAR if in the end nothing was left.
select p.partition,
       case when b.partition is not null and l.value = 0 then {FAR}L else coalesce(s.value, {NONE}) end as below
from fact_partitions p
left join (select distinct partition from observations where kind = {ObservationKind.DRAIN_BEGUN}) b
    on b.partition = p.partition
left join (
    select partition, max(value) as value from observations where kind = {ObservationKind.SHARE_START}
    group by partition
) s on s.partition = p.partition
left join (
    select * from (
        select partition, value, row_number() over (partition by partition order by time_ns desc, row desc) as number
        from observations where kind = {ObservationKind.SHARE_LAG}
    )
    where number = 1
) l on l.partition = p.partition

--- view died_members
-- Until when the last member of a partition's share group that did not end in order may have kept its partitions.
select p.partition, max(h.last_ns + c.share_session_ns) as until_ns
from fact_partitions p
join fact_cells c on c.world = p.world and c.cell = p.cell and c.workload = 'share'
join fact_serving s on s.world = p.world and s.cell = p.cell
join clients l on l.world = s.world and l.client = s.client and l.role = {READER} and l.exit_code != 0
join lived h on h.world = s.world and h.client = s.client
group by p.partition

--- view finished_shares
-- Partitions of which a share group has finished: it was asked to, and nothing is left, or it waited long enough in vain, also
-- after the sessions of members that died.
select a.partition
from (
    select partition, max(time_ns) as asked_ns, max(value) * 1000000L as quiet_ns
    from observations where kind = {ObservationKind.DRAIN_BEGUN} group by partition
) a
join group_offsets g on g.partition = a.partition
left join (select partition, max(acquired_ns) as given_ns from deliveries group by partition) d on d.partition = a.partition
left join (
    select o.partition, max(h.last_ns) as last_ns
    from observations o
    join fact_partitions p on p.partition = o.partition
    join lived h on h.world = p.world and h.client = o.client
    where o.kind = {ObservationKind.DRAIN_BEGUN} group by o.partition
) m on m.partition = a.partition
left join died_members x on x.partition = a.partition
where g.below = {FAR}L
   or m.last_ns - greatest(a.asked_ns, coalesce(d.given_ns, a.asked_ns), coalesce(x.until_ns, a.asked_ns)) >= a.quiet_ns

--- fragment again(kind)
select d.partition, d.sender as client, d.sequence, d.log_offset, d.client as reader, d.since_ns as begin_ns,
       d.acquired_ns as end_ns, f.client as other_client, f.answered_ns as other_ns
from delivery d
join finished_by f
    on f.partition = d.partition and f.log_offset = d.log_offset and f.sender = d.sender and f.sequence = d.sequence
    and f.acknowledgement = {kind} and d.since_ns >= f.answered_ns

--- anomaly undelivered
select l.partition, l.sender as client, l.sequence, l.log_offset,
       case when l.log_offset < coalesce(s.value, {NONE}) then {ShareCase.BEFORE_START}
            else {ShareCase.NO_CAUSE} end as case
from log l
join fact_partitions p on p.partition = l.partition
join fact_cells c on c.world = p.world and c.cell = p.cell and c.workload = 'share' and c.isolation = l.level
left semi join finished_shares b on b.partition = l.partition
left join (
    select * from (
        select partition, value, row_number() over (partition by partition order by time_ns, row) as number
        from observations where kind = {ObservationKind.SHARE_START} and value != {NONE}
    )
    where number = 1
) s on s.partition = l.partition
left anti join deliveries d
    on d.partition = l.partition and d.log_offset = l.log_offset
    and (l.unreadable or d.sequence = {NONE} or (d.sender = l.sender and d.sequence = l.sequence))

--- anomaly accepted-again
{again({ACCEPT})}

--- anomaly rejected-again
{again({REJECT})}

--- anomaly two-holders
select partition, sender as client, sequence, log_offset, client as reader, since_before as begin_ns,
       acquired_ns as end_ns, client_before as other_client, acquired_before as other_ns
from (
    select *, lag(until_ns) over one_record as until_before, lag(client) over one_record as client_before,
           lag(acquired_ns) over one_record as acquired_before, lag(since_ns) over one_record as since_before
    from lock_held
    window one_record as (partition by partition, log_offset, sender, sequence order by acquired_ns, row)
)
where acquired_ns < until_before

--- anomaly miscounted
select d.partition, d.sender as client, d.sequence, d.log_offset, d.client as reader, d.since_ns as begin_ns,
       d.acquired_ns as end_ns, {NONE} as other_client, {MISSING} as other_ns, {ShareCase.BEYOND_LIMIT} as case
from delivery d
join fact_partitions p on p.partition = d.partition
join fact_cells c on c.world = p.world and c.cell = p.cell and d.delivery_count > c.deliveries_max
union all
select partition, sender, sequence, log_offset, client, since_before, acquired_ns, client_before, acquired_before,
       case when released_before and answered_before <= since_ns then {ShareCase.RELEASE_FORGOTTEN}
            else {ShareCase.NOT_RAISED} end
from in_turn
where delivery_count > 0 and count_before > 0
  and (delivery_count = count_before or (delivery_count < count_before and since_ns >= acquired_before))

--- anomaly given-up
with of_record as (
    select *, row_number() over one_record as number,
           max(delivery_count) over (partition by partition, log_offset, sender, sequence) as most,
           max(acknowledgement in ({ACCEPT}, {REJECT}) and code != {TOO_LATE}) over (
               partition by partition, log_offset, sender, sequence
           ) as decided,
           max(acknowledgement in ({ACCEPT}, {REJECT}) and code = {TOO_LATE}) over (
               partition by partition, log_offset, sender, sequence
           ) as late
    from delivery
    window one_record as (partition by partition, log_offset, sender, sequence order by acquired_ns desc, row desc)
)
select r.partition, r.sender as client, r.sequence, r.log_offset, r.client as reader, r.since_ns as begin_ns,
       r.acquired_ns as end_ns,
       case when r.most >= c.deliveries_max then {ShareCase.AT_LIMIT}
            when r.most = c.deliveries_max - 1 then {ShareCase.ONE_SHORT} else {ShareCase.NO_CAUSE} end as case
from of_record r
join group_offsets g on g.partition = r.partition and r.log_offset < g.below
join fact_partitions p on p.partition = r.partition
join fact_cells c on c.world = p.world and c.cell = p.cell
where r.number = 1 and not r.decided and (not r.late or r.most >= c.deliveries_max)

--- view lettered
-- Each record of a share group with a dead-letter queue that was read to its end: what was done with it, and whether it is there.
select t.partition, t.log_offset, t.sender, t.sequence, c.deliveries_max,
       max(t.delivery_count) as most,
       max(t.acknowledgement = {ACCEPT} and t.code != {TOO_LATE}) as accepted,
       max(t.acknowledgement = {REJECT} and t.code != {TOO_LATE}) as rejected,
       max(t.acknowledgement = {ACCEPT} and t.outcome = {OK}) as accepted_ok,
       max(t.acknowledgement = {REJECT} and t.outcome = {OK}) as rejected_ok,
       max(q.log_offset is not null) as there,
       max_by(named_struct('client', t.client, 'since_ns', t.since_ns, 'acquired_ns', t.acquired_ns),
              named_struct('acquired_ns', t.acquired_ns, 'row', t.row)) as newest
from delivery t
join fact_partitions p on p.partition = t.partition
join fact_cells c on c.world = p.world and c.cell = p.cell and c.dead_letters
left semi join observations o on o.partition = t.partition and o.kind = {ObservationKind.DEAD_LETTERS_READ}
left join (
    select distinct partition, value as log_offset from observations where kind = {ObservationKind.DEAD_LETTER}
) q on q.partition = t.partition and q.log_offset = t.log_offset
group by t.partition, t.log_offset, t.sender, t.sequence, c.deliveries_max

--- anomaly dead-letter-missing
select l.partition, l.sender as client, l.sequence, l.log_offset, l.newest.client as reader, l.newest.since_ns as begin_ns,
       l.newest.acquired_ns as end_ns,
       case when l.rejected then {ShareCase.NO_CAUSE} else {ShareCase.AT_LIMIT} end as case
from lettered l
join group_offsets g on g.partition = l.partition and l.log_offset < g.below
where not l.there and not l.accepted and (l.rejected_ok or (l.most >= l.deliveries_max and not l.rejected))

--- anomaly dead-letter-extra
select partition, sender as client, sequence, log_offset, newest.client as reader, newest.since_ns as begin_ns,
       newest.acquired_ns as end_ns,
       case when most = deliveries_max - 1 then {ShareCase.ONE_SHORT} else {ShareCase.NO_CAUSE} end as case
from lettered
where there and accepted_ok and not rejected and most < deliveries_max

--- anomaly share-start-regression
select partition, client as reader, value as log_offset, time_before as begin_ns, time_ns as end_ns,
       value_before as other_offset, time_before as other_ns
from (
    select *, lag(value) over answers as value_before, lag(time_ns) over answers as time_before
    from observations where kind = {ObservationKind.SHARE_START} and value != {NONE}
    window answers as (partition by partition, client order by time_ns, row)
)
where value < value_before
