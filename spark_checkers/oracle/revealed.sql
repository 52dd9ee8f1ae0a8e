-- The first view of a history that nobody audited, in place of an audit.
--
-- At each offset from which a consumer received a record, or at which a send was acknowledged, one record stands: the one
-- that was received last, or else the acknowledged one. The view shows it as reads of two clients with the role AUDIT: of
-- all that, and of what read_committed consumers received or was acknowledged.

--- view reads
-- `received` is the table of reads. What the rest calls `reads` shows the log, too.
with witness as (
    select partition, log_offset, sequence, key, client as sender, partition as sent_partition, row,
           completed_ns as time_ns, 0 as place, explode(array({UNCOMMITTED}, {COMMITTED})) as level
    from sends where outcome = {OK} and log_offset != {NONE}
    union all
    select r.partition, r.log_offset, r.sequence, r.key, r.sender, r.sent_partition, r.row, r.read_ns, 1,
           explode(if(c.isolation = {COMMITTED}, array({UNCOMMITTED}, {COMMITTED}), array({UNCOMMITTED})))
    from received r
    join fact_partitions p on p.partition = r.partition
    left join fact_clients c on c.world = p.world and c.client = r.client
    where r.log_offset != {NONE} and (r.flags & {CORRUPT}) = 0
)
select {READ_COLUMNS} from received
union all
select {REVEALED_COLUMNS}
from (
    select *, row_number() over (
        partition by partition, level, log_offset order by place desc, time_ns desc, row desc
    ) as newest
    from witness
) w
join fact_partitions p on p.partition = w.partition
join fact_clients a on a.world = p.world and a.role = {AUDIT} and a.isolation = w.level
where w.newest = 1
