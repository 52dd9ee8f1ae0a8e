-- The second opinion on transactions. What a record should be follows from its transaction, wherever it stands.
--
-- Cycles among transactions are in `cycles.sql`.

--- fragment judged_record
-- Records of transactions, with what became of these.
select r.partition, r.client, r.sequence
from record r
join fact_partitions q on q.partition = r.partition
join settled t
    on t.world = r.world and t.cell = q.cell and t.client = r.client and t.transaction = r.transaction

--- fragment shown_record
-- Records of transactions that somebody was given, for each isolation level.
select distinct h.partition, h.client, h.sequence, case when h.committed then 0 else 1 end as case
from showing h
join transactions x on x.world = h.world and x.client = h.client and x.transaction = h.transaction

--- view unreadable_shown
select distinct partition from log where level = {COMMITTED} and unreadable

--- view transacted
-- Sends of recorded transactions, and what became of these.
select s.*, x.outcome as became
from sent s
join transactions x on x.world = s.world and x.client = s.client and x.transaction = s.transaction
where s.transaction != {NONE}

--- view transactional
select distinct partition from transacted

--- view queued
-- Those of them that entered the client's queue, and whether V shows them.
select s.*, v.sender is not null as shown
from transacted s
left join first_copy v
    on v.partition = s.partition and v.level = {COMMITTED} and v.sender = s.client and v.sequence = s.sequence
where s.outcome != {FAIL} or s.became = {FAIL}

--- view hidden
select * from queued where not shown

--- view record
-- The same; `missing`: V ought to show it, and does not.
select partition, world, client, sequence, transaction, shown, false as missing from queued where shown
union all
select s.partition, s.world, s.client, s.sequence, s.transaction, false,
       p.end_committed is not null
       and not (
           {cleaned(s; s.size = {NONE})}
           or (e.sentinel_ns is not null and s.completed_ns >= e.sentinel_ns
               and (s.log_offset = {NONE} or s.log_offset > p.end_committed))
           or (c.partition is not null and (s.log_offset = {NONE} or coalesce(l.unreadable, false)))
       ) as missing
from hidden s
join fact_partitions p on p.partition = s.partition
left join sentinel e on e.partition = s.partition
left join unreadable_shown c on c.partition = s.partition
left join log l on l.partition = s.partition and l.level = {COMMITTED} and l.log_offset = s.log_offset
{cleaning(s)}

--- view showing
-- By whom a record of a recorded transaction was given: consumers, and V.
select g.partition, g.world, g.sender as client, g.sequence, s.transaction, g.read_ns, g.by_audit, g.client as reader,
       g.isolation = {COMMITTED} as committed
from given g
left semi join transactional t on t.partition = g.partition
join transacted s on s.partition = g.partition and s.client = g.sender and s.sequence = g.sequence
where not g.unreadable and not g.by_audit
union all
select l.partition, l.world, l.sender, l.sequence, s.transaction, l.read_ns, true, {NONE}, true
from log l
left semi join transactional t on t.partition = l.partition
join transacted s on s.partition = l.partition and s.client = l.sender and s.sequence = l.sequence
where l.level = {COMMITTED} and not l.unreadable

--- view left_open
-- For how long the coordinators of a cell leave a transaction open.
select world, cell, open_ns from fact_cells

--- view open_until
-- Until when each transaction of a cell was certainly open: before a commit (2), or before an abort (3).
select t.world, l.cell, t.client, t.transaction, {EarlyCase.BEHIND_OPEN} as kind, t.end_invoked_ns as until_ns
from transactions t join left_open l on l.world = t.world
where t.transaction != {NONE} and t.ended_by = 1 and t.outcome = {OK} and t.end_invoked_ns != {MISSING}
union all
select t.world, l.cell, t.client, t.transaction, {EarlyCase.BEHIND_ABORTED},
       least(t.end_invoked_ns, t.begun_ns + l.open_ns, min(i.begun_ns))
from transactions t
join left_open l on l.world = t.world and l.open_ns is not null
left join transactions i
    on i.world = t.world and i.transactional_id = t.transactional_id and i.transaction = {NONE}
    and (i.initialised_ns = {MISSING} or i.initialised_ns > t.initialised_ns)
where t.transaction != {NONE} and t.ended_by = 2 and t.outcome = {FAIL} and t.code = 0
  and {MISSING} not in (t.begun_ns, t.end_invoked_ns, t.completed_ns, t.initialised_ns)
group by t.world, l.cell, t.client, t.transaction, t.end_invoked_ns, t.begun_ns, l.open_ns

--- view settled
select x.world, x.client, x.transaction, x.initialised_ns, x.transactional_id, x.cell,
       x.ended_by = 2 as aborted,
       case when x.ended_by = 1 and x.end_invoked_ns != {MISSING} then x.end_invoked_ns end as commit_ns,
       x.shown,
       x.ended_by != 2 and (x.outcome = {OK} or (x.outcome = {INFO} and (x.shown or coalesce(g.seen, false))))
           as committed
from (
    select t.*, r.cell, coalesce(r.shown, false) as shown
    from transactions t
    join (
        select r.world, p.cell, r.client, r.transaction, bool_or(r.shown) as shown
        from record r join fact_partitions p on p.partition = r.partition
        group by r.world, p.cell, r.client, r.transaction
    ) r on r.world = t.world and r.client = t.client and r.transaction = t.transaction
    where t.transaction != {NONE}
) x
left join (
    select h.world, p.cell, h.client, h.transaction, true as seen
    from showing h join fact_partitions p on p.partition = h.partition
    where h.committed and not h.by_audit group by h.world, p.cell, h.client, h.transaction
) g on g.world = x.world and g.cell = x.cell and g.client = x.client and g.transaction = x.transaction

--- anomaly torn
{judged_record} where r.missing and t.shown and not t.aborted

--- anomaly lost-transaction
{judged_record} where r.missing and t.committed and not t.shown

--- anomaly zombie-write
{judged_record}
where r.shown and t.initialised_ns != {MISSING} and t.commit_ns is not null
  and exists (
      select 1 from transactions i
      where i.transaction = {NONE} and i.world = t.world and i.transactional_id = t.transactional_id
        and i.begun_ns > t.initialised_ns and i.initialised_ns != {MISSING}
        and i.initialised_ns < t.commit_ns
  )

--- anomaly aborted-read
{shown_record} where x.ended_by = 2

--- anomaly own-read
-- It reads within a transaction from its begin until its end is invoked, or another one begins.
{shown_record}
left anti join transactions n
    on n.world = h.world and n.client = h.client and n.transaction > h.transaction and n.begun_ns <= h.read_ns
where h.reader = h.client and x.begun_ns <= h.read_ns
  and (x.end_invoked_ns = {MISSING} or h.read_ns <= x.end_invoked_ns)

--- anomaly early-read
-- A record given before its own commit; and, by the same clock, one behind a record of an open transaction.
with left_behind as (
    select partition, sender, sequence, read_ns, log_offset,
           max(case when kind = {EarlyCase.BEHIND_OPEN} then until_ns end) over so_far as committed_ns,
           max(case when kind = {EarlyCase.BEHIND_ABORTED} then until_ns end) over so_far as aborted_ns
    from (
        select s.partition, s.clock, l.log_offset, u.kind, u.until_ns, null as sender, null as sequence,
               null as read_ns
        from transacted s
        join log l
            on l.partition = s.partition and l.level = {UNCOMMITTED} and l.sender = s.client
            and l.sequence = s.sequence and not l.unreadable
        join open_until u
            on u.world = s.world and u.cell = s.cell and u.client = s.client and u.transaction = s.transaction
        where s.clock != {NONE}
        union all
        select g.partition, c.clock, g.log_offset, null, null, g.sender, g.sequence, g.read_ns
        from given g
        join fact_clients c on c.world = g.world and c.client = g.client and c.clock != {NONE}
        join log l
            on l.partition = g.partition and l.level = {UNCOMMITTED} and l.log_offset = g.log_offset
            and l.sender = g.sender and l.sequence = g.sequence and not l.unreadable
        left join transacted s
            on s.partition = g.partition and s.client = g.sender and s.sequence = g.sequence
        left join transactions x
            on x.world = s.world and x.client = s.client and x.transaction = s.transaction
        where g.isolation = {COMMITTED} and not g.by_audit and not g.unreadable
          and (s.client is null or (x.ended_by = 1 and x.end_invoked_ns != {MISSING}
                                    and g.read_ns >= x.end_invoked_ns))
    )
    window so_far as (partition by partition, clock order by log_offset)
)
{shown_record}
join fact_clients c on c.world = h.world and c.client = h.reader
join fact_clients d on d.world = h.world and d.client = h.client and d.clock = c.clock
where x.ended_by != 2 and not h.by_audit and c.clock != {NONE}
  and (x.ended_by != 1 or x.end_invoked_ns = {MISSING} or h.read_ns < x.end_invoked_ns)
union all
select distinct partition, sender, sequence,
       case when coalesce(committed_ns > read_ns, false) then {EarlyCase.BEHIND_OPEN}
            else {EarlyCase.BEHIND_ABORTED} end
from left_behind where committed_ns > read_ns or aborted_ns > read_ns
