-- The second opinion on keys: one key is in one partition, where producers leave the choice to their library.

--- view keyed
-- Acknowledged records that have a key, as producers sent them.
select f.world, f.cell, s.*
from sends s join fact_partitions f on f.partition = s.partition
where s.outcome = {OK} and s.key > 0 and s.client != {SENTINEL}

--- anomaly split-key
with added as (
    select f.world, f.cell, min(m.time_ns - f.error_ns) as at_ns
    from fact_partitions f
    left join metadata m on m.partition = f.partition and m.source = {TRUTH} and m.kind = {OF_PARTITION}
    where f.late group by f.world, f.cell
),
of_one as (
    select *, lag(partition) over (partition by world, cell, client, key order by sequence) as before,
           lag(client) over (partition by world, cell, client, key order by sequence) as other_client,
           lag(sequence) over (partition by world, cell, client, key order by sequence) as other_sequence
    from keyed
),
of_all as (
    select *, lag(partition) over (partition by world, cell, key order by completed_ns, invoked_ns, client, sequence) as before,
           lag(client) over (partition by world, cell, key order by completed_ns, invoked_ns, client, sequence) as other_client,
           lag(sequence) over (partition by world, cell, key order by completed_ns, invoked_ns, client, sequence) as other_sequence
    from keyed
),
moved as (
    select *, row_number() over (partition by world, cell, client, key order by sequence) = 1 as first, true as alone
    from of_one where partition != before
    union all
    select *, false, false from of_all where partition != before and client != other_client
)
select o.partition, o.client, o.sequence, o.other_client, o.other_sequence,
       case when a.cell is not null and (a.at_ns is null or o.completed_ns >= a.at_ns) and (
                if(o.alone, o.first, a.at_ns is null or o.invoked_ns <= a.at_ns + c.metadata_age_ns)
            ) then if(a.at_ns is null, {KeyCase.PERHAPS_ADDED}, {KeyCase.ADDED})
            else if(o.alone, {KeyCase.ONE_PRODUCER}, {KeyCase.TWO_PRODUCERS}) end as case
from moved o
join fact_cells c on c.world = o.world and c.cell = o.cell and c.keyed
left join added a on a.world = o.world and a.cell = o.cell
