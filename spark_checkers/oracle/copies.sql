-- The second opinion on copiers: each record of the source topic stands once in the derived topic.

--- view copying
-- Cells with copiers, and whether the audit showed all of both topics.
select c.world, c.cell, c.by_content,
       bool_and(
           case when f.derived then f.end_committed when o.partition is null then f.end_uncommitted end is not null
       ) as whole
from fact_cells c join fact_partitions f on f.world = c.world and f.cell = c.cell
left join passed_over o on o.partition = f.partition
where c.workload in ('exactly-once', 'application')
group by c.world, c.cell, c.by_content

--- view final
-- What the group had committed in the end, as the observer learned last.
select partition, value as committed from (
    select o.partition, o.value,
           row_number() over (partition by o.partition order by o.time_ns desc, o.row desc) as newest
    from observations o
    join fact_partitions f on f.partition = o.partition
    join fact_clients k on k.world = f.world and k.client = o.client and k.role = {OBSERVER}
    where o.kind = {ObservationKind.COMMITTED}
)
where newest = 1

--- view original
-- Source records by what their copies carry; null: nothing is known of it.
select c.world, c.cell, c.whole, l.partition, l.log_offset, l.sender, l.sequence,
       coalesce(l.log_offset < d.committed, false) as below,
       case when c.by_content then nullif(l.origin, {NONE})
            when not l.unreadable then {identity(l.sender; l.sequence)} end as content
from copying c
join fact_partitions f on f.world = c.world and f.cell = c.cell and not f.derived
join log l on l.partition = f.partition and l.level = {UNCOMMITTED}
left join final d on d.partition = f.partition

--- view copied
select c.world, c.cell, c.whole, l.partition, l.log_offset, l.sender, l.sequence,
       nullif(l.origin, {NONE}) as content,
       row_number() over (
           partition by c.world, c.cell, l.origin order by l.partition, l.log_offset
       ) as number
from copying c
join fact_partitions f on f.world = c.world and f.cell = c.cell and f.derived
join log l on l.partition = f.partition and l.level = {COMMITTED}

--- anomaly not-exactly-once
with missing as (
    select partition, sender, sequence, log_offset, {CopyCase.MISSING} as case from (
        select o.*, coalesce(n.copies, 0) as copies,
               row_number() over (
                   partition by o.world, o.cell, o.content order by o.partition, o.log_offset
               ) as number
        from original o
        left join (select world, cell, content, count(*) as copies from copied group by world, cell, content) n
            on n.world = o.world and n.cell = o.cell and n.content = o.content
        where o.whole and o.below and o.content >= 0
    )
    where number > copies
),
counted as (
    select c.*, coalesce(n.originals, 0) as originals
    from copied c
    left join (select world, cell, content, count(*) as originals from original group by world, cell, content) n
        on n.world = c.world and n.cell = c.cell and n.content = c.content
)
select partition, sender as client, sequence, log_offset, case from missing
union all
select partition, sender, sequence, log_offset, {CopyCase.REPEATED} from counted
where content >= 0 and number > greatest(1, originals) and (originals > 0 or not whole)
union all
select partition, sender, sequence, log_offset, {CopyCase.STRANGE} from counted
where whole and originals = 0
