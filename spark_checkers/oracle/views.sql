-- The views of the second opinion: tables and facts of a history, and what several checks need of them, in plain SQL.
--
-- They share no code with the kernels on purpose: they are written from the definitions, record by record, to be read and
-- not to be fast. Every row of a table has its number in the order of writing, `row`. A `world` is one history. Each
-- world has its own ids of clients, and no two worlds share an id of a partition or a cell, so that SQL can be asked
-- about many histories at once.
--
-- Codes are those of `prozess.harness.schema`. A number that is not there is -1 (NONE), and a time that never came is
-- MISSING.
--
-- How these files are read says `texts.py`: `{NAME}` is a constant, `{Enum.MEMBER}` the number of a case, and `{name(…;
-- …)}` a fragment.

--- fragment cleaning(record)
-- The joins that `cleaned` needs, for a record of this alias with `partition` and `key`, beside `fact_partitions p`.
left join last_of_key k on k.partition = {record}.partition and k.key = {record}.key
left join tombstone t on t.partition = {record}.partition and t.key = {record}.key

--- fragment cleaned(record; tombstone)
-- Retention or compaction may have removed this record. Its offset may be NONE, which stands for any. `tombstone`: the
-- condition that it is one.
(
        (p.log_start > 0 and {record}.log_offset < p.log_start)
        or (p.compacted and {record}.key != {NONE}
            and ({tombstone} or coalesce(k.log_offset > {record}.log_offset, false)
                 or coalesce(t.log_offset > {record}.log_offset, false)))
    )

--- fragment identity(client; sequence)
-- Both as one number, which copies carry in `reads.origin`.
(shiftleft(cast({client} as bigint), {SEQUENCE_BITS}) | {sequence})

--- view given
-- Who was given what. The sentinels' own records are nobody's.
select r.*, p.world, p.cell,
       (r.flags & {CORRUPT}) != 0 as corrupt,
       (r.flags & ({CORRUPT} | {ANONYMOUS})) != 0 as unreadable,
       coalesce(c.role, 0) = {AUDIT} as by_audit,
       coalesce(c.isolation, -1) as isolation
from reads r
join fact_partitions p on p.partition = r.partition
left join fact_clients c on c.world = p.world and c.client = r.client
where r.sender != {SENTINEL}

--- view log
-- L (level 0) and V (level 1): what the audit read below the sentinel; of an offset read twice the last reading.
select partition, level, log_offset, sender, sequence, unreadable, key, origin, sent_partition, read_ns, world,
       row_number() over (partition by partition, level order by log_offset) as position
from (
    select g.*, g.isolation as level,
           row_number() over (
               partition by g.partition, g.isolation, g.log_offset order by g.read_ns desc, g.row desc
           ) as newest
    from given g
    join fact_partitions p on p.partition = g.partition
    where g.by_audit and g.isolation in ({UNCOMMITTED}, {COMMITTED})
      and g.log_offset < coalesce(
          case g.isolation when {UNCOMMITTED} then p.end_uncommitted else p.end_committed end, {FOREVER}
      )
)
where newest = 1

--- view first_copy
-- Each readable record of L and V, where it stands first, and how often it stands there.
select partition, level, sender, sequence, min(position) as position, min(log_offset) as log_offset,
       min_by(sent_partition, position) as sent_partition, count(*) as copies
from log where not unreadable group by partition, level, sender, sequence

--- view sent
select s.*, p.world, p.cell, coalesce(c.acks, 0) as acks, coalesce(c.clock, -1) as clock
from sends s
join fact_partitions p on p.partition = s.partition
left join fact_clients c on c.world = p.world and c.client = s.client
where s.client != {SENTINEL}

--- view sentinel
-- The sentinel that ends L was sent then.
select s.partition,
       coalesce(
           min(case when s.log_offset = coalesce(p.end_uncommitted, {NONE}) then s.invoked_ns end),
           min(s.invoked_ns)
       ) as sentinel_ns
from sends s join fact_partitions p on p.partition = s.partition
where s.client = {SENTINEL} group by s.partition

--- view unconfirmed
-- What was given and L does not confirm: nothing stands there, or another record (or one that nobody can read).
select g.*, l.log_offset is not null as replaced, coalesce(l.unreadable, false) as unreadable_there
from given g
left join log l on l.partition = g.partition and l.level = {UNCOMMITTED} and l.log_offset = g.log_offset
where not g.unreadable
  and (l.log_offset is null or l.unreadable or l.sender != g.sender or l.sequence != g.sequence)

--- view straggler
-- Records that the audit was given behind the sentinel.
select distinct g.partition, g.sender, g.sequence
from given g join fact_partitions p on p.partition = g.partition
where g.by_audit and g.isolation = {UNCOMMITTED} and g.log_offset > p.end_uncommitted and not g.unreadable

--- view never_issued
-- Records that no producer issued. Past the rows of a producer that crashed there may be any.
select distinct g.partition, g.sender, g.sequence
from given g left join fact_clients c on c.world = g.world and c.client = g.sender
where not g.unreadable
  and (g.sequence < 0 or coalesce(c.role, 0) not in ({PRODUCER}, {MEMBER})
       or (c.issued != {NONE} and g.sequence >= c.issued))

--- view tombstone
-- The last tombstone of each key, FOREVER if it may stand anywhere.
select partition, key,
       max(case when outcome = {OK} and log_offset != {NONE} then log_offset else {FOREVER} end) as log_offset
from sent where size = {NONE} and outcome != {FAIL} and key != {NONE} group by partition, key

--- view last_of_key
select partition, key, max(log_offset) as log_offset from log where level = {UNCOMMITTED} group by partition, key

--- view beside_log
-- What was given at an offset below the sentinel at which L has nothing.
select g.* from given g
join fact_partitions p on p.partition = g.partition
left anti join log l
    on l.partition = g.partition and l.level = {UNCOMMITTED} and l.log_offset = g.log_offset
where g.log_offset >= greatest(p.log_start, 0) and g.log_offset < p.end_uncommitted

--- view only_stored
-- Offsets that a consumer or an acknowledgement names, at which L has nothing, and a batch of each replica a record.
with named as (
    select b.partition, b.log_offset from beside_log b
    join fact_partitions p on p.partition = b.partition and not p.compacted
    where not b.by_audit
    union
    select s.partition, s.log_offset from sent s
    join fact_partitions p on p.partition = s.partition and not p.compacted
    left anti join log l
        on l.partition = s.partition and l.level = {UNCOMMITTED} and l.log_offset = s.log_offset
    where s.outcome = {OK} and s.log_offset >= greatest(p.log_start, 0) and s.log_offset < p.end_uncommitted
),
unread as (
    select distinct a.partition from fact_assignment a
    left anti join fact_copies c on c.partition = a.partition and c.node = a.node
)
select n.partition, n.log_offset
from named n
join fact_copies c on c.partition = n.partition
left join replicas r
    on r.partition = n.partition and r.node = c.node and r.step = {NONE} and r.base_offset <= n.log_offset
    and r.last_offset >= n.log_offset and (r.attributes & 32) = 0
left anti join unread u on u.partition = n.partition
group by n.partition, n.log_offset
having count(distinct case when r.node is not null then c.node end) = count(distinct c.node)

--- view passed_over
-- Partitions of which the audit at read_uncommitted passed over what is there: L is not whole.
select partition from only_stored
union
select b.partition
from beside_log b
join fact_partitions p on p.partition = b.partition
left join sent s
    on s.partition = b.partition and s.client = b.sender and s.sequence = b.sequence and not b.unreadable
{cleaning(b)}
where b.by_audit and not (p.compacted and {cleaned(b; coalesce(s.size = {NONE}, true))})

--- view truth_by_topic
-- The controllers' log of each partition, with the row before.
select m.*, p.min_insync, p.error_ns,
       sum(m.begins) over (partition by m.partition order by m.log_position, m.time_ns, m.row) as life
from (
    select *, case
        when lag(kind) over (partition by partition order by log_position, time_ns, row) = {DELETED}
             and kind != {DELETED} then 1
        when topic is null or topic_before is null or topic = topic_before then 0 else 1 end as begins
    from (
        select *, lag(topic) ignore nulls over (partition by partition order by log_position, time_ns, row)
                      as topic_before
        from (
            select *, case when topic_id_high != {NONE} or topic_id_low != {NONE}
                           then concat(topic_id_high, ' ', topic_id_low) end as topic
            from metadata where source = {TRUTH} and kind in ({OF_PARTITION}, {DELETED})
        )
    )
) m join fact_partitions p on p.partition = m.partition

--- view truth
select m.*,
       row_number() over (partition by m.partition order by m.log_position, m.time_ns, m.row) as number,
       lag(m.leader) over (partition by m.partition order by m.log_position, m.time_ns, m.row) as leader_before,
       lag(m.isr) over (partition by m.partition order by m.log_position, m.time_ns, m.row) as isr_before,
       lag(m.elr) over (partition by m.partition order by m.log_position, m.time_ns, m.row) as elr_before,
       lag(m.last_known_elr) over (partition by m.partition order by m.log_position, m.time_ns, m.row)
           as last_known_before,
       lag(m.replicas) over (partition by m.partition order by m.log_position, m.time_ns, m.row)
           as replicas_before,
       lag(m.life) over (partition by m.partition order by m.log_position, m.time_ns, m.row) as life_before,
       max(m.time_ns) over (partition by m.partition order by m.log_position, m.time_ns, m.row) as since_ns
from truth_by_topic m
