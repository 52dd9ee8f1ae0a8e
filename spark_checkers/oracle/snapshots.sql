-- What replicas remember of producers: batches in sequence, and snapshots against the batches below them.

--- anomaly out-of-sequence
with batch as (
    select r.*, (r.attributes & {CONTROL}) != 0 as marker,
           max(r.producer_epoch) over (
               partition by r.partition, r.node, r.producer_id order by r.base_offset
               rows between unbounded preceding and 1 preceding
           ) as newest_epoch
    from replicas r
    join fact_partitions f on f.partition = r.partition and not f.compacted
    join fact_copies c on c.partition = r.partition and c.node = r.node
    where r.step = {NONE} and r.producer_id >= 0 and r.last_offset >= c.log_start
),
following as (
    select *, lag(producer_epoch) over one as epoch_before,
           base_sequence - lag(base_sequence + last_offset - base_offset + 1) over one as ahead
    from batch where not marker
    window one as (partition by partition, node, producer_id order by base_offset)
),
found as (
    select *, case
        when producer_epoch < newest_epoch then {SequenceCase.OLD_EPOCH}
        when producer_epoch != epoch_before
            then case when base_sequence != 0 then {SequenceCase.NOT_FROM_ZERO} end
        when pmod(ahead, 1L << 31) = 0 then null
        when pmod(ahead, 1L << 31) < 1L << 30 then {SequenceCase.GAP}
        when ahead is not null then {SequenceCase.REPEATED} end as case
    from following
)
select partition, log_offset, sequence, reader, case from (
    select partition, base_offset as log_offset, cast(base_sequence as bigint) as sequence, node as reader, case,
           row_number() over (partition by partition, producer_id, base_offset order by node) as number
    from found where case is not null
)
where number = 1

--- anomaly snapshot-conflict
with noted as (
    select distinct o.partition, o.node, o.value as snapshot_offset, c.log_start
    from observations o
    join fact_partitions f on f.partition = o.partition and not f.compacted
    join fact_copies c on c.partition = o.partition and c.node = o.node and o.value <= c.log_end
    where o.kind = {ObservationKind.REPLICA_SNAPSHOT} and o.step = {NONE}
),
below as (
    select n.*, b.producer_id, b.base_offset, b.last_offset, b.producer_epoch, b.base_sequence, b.max_timestamp_ms,
           (b.attributes & {CONTROL}) != 0 as marker,
           (b.attributes & ({CONTROL} | {TRANSACTIONAL})) = {TRANSACTIONAL} as in_transaction,
           last_value(b.producer_epoch) over whole_of as epoch,
           max(case when (b.attributes & {CONTROL}) != 0 then b.base_offset end) over whole_of as marker_at
    from noted n
    join replicas b on b.partition = n.partition and b.node = n.node and b.step = {NONE}
        and b.base_offset < n.snapshot_offset and b.producer_id >= 0 and b.last_offset >= n.log_start
    window whole_of as (
        partition by n.partition, n.node, n.snapshot_offset, b.producer_id order by b.base_offset
        rows between unbounded preceding and unbounded following
    )
),
aged as (
    select *, coalesce(max(case when producer_epoch != epoch then base_offset end) over (
               partition by partition, node, snapshot_offset, producer_id
           ), {NONE}) as epoch_before_at
    from below
),
kept as (
    select partition, node, snapshot_offset, log_start, producer_id, max(epoch) as epoch,
           max_by(max_timestamp_ms, base_offset) as timestamp_ms, max(last_offset) as reached,
           max_by(struct(base_sequence, base_offset, last_offset), base_offset)
               filter (where not marker and base_offset > epoch_before_at) as newest,
           coalesce(min(base_offset) filter (where in_transaction and base_offset > coalesce(marker_at, -1)), {NONE})
               as transaction_offset,
           max(epoch_before_at) != {NONE} as epoch_changed, max(marker_at) is not null as marked
    from aged
    group by partition, node, snapshot_offset, log_start, producer_id
),
remembered as (
    select s.*, n.log_start
    from snapshots s
    join noted n on n.partition = s.partition and n.node = s.node and n.snapshot_offset = s.snapshot_offset
    where s.step = {NONE}
),
compared as (
    select coalesce(k.partition, r.partition) as partition, coalesce(k.node, r.node) as node,
           coalesce(k.snapshot_offset, r.snapshot_offset) as snapshot_offset, k.reached, r.last_sequence,
           cast((k.newest.base_sequence + k.newest.last_offset - k.newest.base_offset) % (1L << 31) as int)
               as own_sequence,
           case
               when r.partition is null then {SnapshotCase.UNKNOWN_THERE}
               when k.partition is null then
                   case when r.last_offset >= r.log_start or r.log_start = 0
                        then {SnapshotCase.UNKNOWN_HERE} else 0 end
               when k.epoch != r.producer_epoch then {SnapshotCase.EPOCH}
               when (k.log_start = 0 or k.newest is not null or k.epoch_changed)
                    and (coalesce(k.newest.last_offset, {NONE}) != r.last_offset
                         or coalesce(k.newest.last_offset - k.newest.base_offset, 0) != r.offset_delta
                         or coalesce((k.newest.base_sequence + k.newest.last_offset - k.newest.base_offset)
                                     % (1L << 31), {NONE}) != r.last_sequence)
                   then {SnapshotCase.LAST_BATCH}
               when (k.log_start = 0 or k.marked) and k.transaction_offset != r.transaction_offset
                   then {SnapshotCase.TRANSACTION}
               when k.timestamp_ms != r.timestamp_ms then {SnapshotCase.TIMESTAMP}
               else 0
           end as case
    from kept k
    full join remembered r
        on r.partition = k.partition and r.node = k.node and r.snapshot_offset = k.snapshot_offset
        and r.producer_id = k.producer_id
)
select partition, node as reader, snapshot_offset as log_offset, coalesce(reached, {NONE}) as other_offset,
       cast(coalesce(last_sequence, {NONE}) as bigint) as sequence,
       cast(coalesce(own_sequence, {NONE}) as bigint) as other_sequence, case
from compared where case > 0
