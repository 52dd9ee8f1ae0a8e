-- The second opinion on what the copies of a partition have.

--- view alike
-- Partitions that have several copies, and between which offsets those must be alike.
select p.partition, p.compacted, max(c.log_start) as low,
       greatest(coalesce(max(p.end_uncommitted), -1) + 1, min(coalesce(c.high_watermark, 0))) as high
from fact_partitions p
join fact_copies c on c.partition = p.partition
join (select partition, count(*) as nodes from fact_assignment group by partition) a
    on a.partition = p.partition and a.nodes >= 2
group by p.partition, p.compacted

--- view batch
-- The batches of each copy there, and what of their headers must be alike.
select r.partition, j.compacted, r.node, r.base_offset, r.last_offset,
       struct(
           r.last_offset, r.leader_epoch, r.producer_id, r.producer_epoch, r.base_sequence,
           if(j.compacted, r.attributes & 56, r.attributes) as attributes,
           if(j.compacted, null, struct(
               r.checksum, r.records, r.base_timestamp_ms, r.max_timestamp_ms, r.size
           )) as content
       ) as header
from replicas r
join alike j on j.partition = r.partition and r.base_offset >= j.low and r.base_offset < j.high
join fact_copies c on c.partition = r.partition and c.node = r.node
where r.step = {NONE}

--- anomaly diverged
with uneven as (
    select b.partition, b.base_offset
    from batch b
    join (select partition, count(*) as copies from fact_copies group by partition) c on c.partition = b.partition
    group by b.partition, b.base_offset
    having count(distinct b.header) > 1 or count(distinct b.node) != max(c.copies)
),
place as (
    select distinct b.partition, b.compacted, b.base_offset, u.partition is not null as uneven
    from batch b
    left join uneven u on u.partition = b.partition and u.base_offset = b.base_offset
),
within as (
    select distinct partition, node, base_offset from (
        select p.partition, c.node, p.base_offset,
               max(b.last_offset) over (
                   partition by p.partition, c.node order by p.base_offset
                   rows between unbounded preceding and current row
               ) as reached
        from place p
        join fact_copies c on c.partition = p.partition
        left join batch b
            on b.partition = p.partition and b.node = c.node and b.base_offset = p.base_offset
        where p.compacted
    )
    where reached >= base_offset
),
compared as (
    select p.partition, p.base_offset, one.node as one, other.node as other,
           not p.compacted and b.header is null and p.base_offset >= other.log_end as behind
    from place p
    join fact_copies one on one.partition = p.partition
    join fact_copies other on other.partition = p.partition and other.node != one.node
    left join batch a on a.partition = p.partition and a.node = one.node and a.base_offset = p.base_offset
    left join batch b on b.partition = p.partition and b.node = other.node and b.base_offset = p.base_offset
    left join within x on x.partition = p.partition and x.node = one.node and x.base_offset = p.base_offset
    left join within y on y.partition = p.partition and y.node = other.node and y.base_offset = p.base_offset
    where p.uneven and not (a.header <=> b.header)
      and (not p.compacted or (x.node is not null and y.node is not null))
),
trusted as (
    select partition, one from (
        select c.partition, c.node as one,
               row_number() over (partition by c.partition order by count(d.other), c.node) as number
        from fact_copies c left join compared d on d.partition = c.partition and d.one = c.node
        group by c.partition, c.node
    )
    where number = 1
)
select partition, reader, log_offset from (
    select c.partition, c.other as reader, c.base_offset as log_offset, c.behind,
           row_number() over (partition by c.partition, c.other, c.behind order by c.base_offset) as number
    from compared c join trusted t on t.partition = c.partition and t.one = c.one
)
where not behind or number = 1
