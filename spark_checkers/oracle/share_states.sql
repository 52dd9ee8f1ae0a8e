-- The second opinion on records of share coordinators that KIP-932 does not permit.

--- view stated_of_share
-- Each row of a partition of the cell's group, numbered in the order of the log, with the state epoch that it belongs to.
with turned as (
    select s.*, row_number() over (partition by s.partition order by s.log_offset, s.row) as turn
    from share_states s join fact_partitions f on f.partition = s.partition and f.world = s.world
    where s.`group` != {NONE}
),
stated as (
    select *, last_value(if(kind = {ShareRecord.SNAPSHOT}, state_epoch, null), true) over (
               partition by partition order by turn
           ) as epoch_now
    from turned
)
select *, sum(begins) over (partition by partition order by turn) as life
from (
    select *, if(kind = {ShareRecord.GONE}
                 or not (epoch_now <=> lag(epoch_now) over (partition by partition order by turn)), 1, 0) as begins
    from stated
)

--- view state_of_record
-- Each state of a record beside the one before it, in the same life.
select partition, `offset`, time_ns, state, delivery_count,
       lag(state) over w as state_before, lag(delivery_count) over w as count_before
from (
    select s.*, explode(sequence(first_offset, last_offset)) as `offset`
    from stated_of_share s where kind = {ShareRecord.RANGE} and last_offset >= first_offset
)
window w as (partition by partition, life, `offset` order by turn)

--- anomaly illegal-share-state
with starts as (
    select *, lag(first_offset) over (partition by partition, life order by turn) as start_before
    from stated_of_share
    where kind in ({ShareRecord.SNAPSHOT}, {ShareRecord.UPDATE}) and first_offset >= 0
),
epochs as (
    select *, lag(state_epoch) over (partition by partition order by turn) as epoch_before
    from stated_of_share where kind in ({ShareRecord.SNAPSHOT}, {ShareRecord.GONE})
),
leaders as (
    select *, lag(partition_epoch) over (partition by partition order by turn) as epoch_before
    from stated_of_share where kind in ({ShareRecord.SNAPSHOT}, {ShareRecord.UPDATE}, {ShareRecord.GONE})
)
select partition, `offset` as log_offset, time_ns as begin_ns, delivery_count as sequence,
       {ShareStateCase.FINAL_TAKEN_BACK} as `case`
from state_of_record
where (state_before in ({ShareState.ACKNOWLEDGED}, {ShareState.ARCHIVED}) and state != state_before)
   or (state_before = {ShareState.ARCHIVING} and state not in ({ShareState.ARCHIVING}, {ShareState.ARCHIVED}))
union all
select partition, `offset`, time_ns, delivery_count, {ShareStateCase.COUNT_FELL}
from state_of_record where delivery_count < count_before
union all
select partition, first_offset, time_ns, first_offset, {ShareStateCase.START_FELL} from starts where first_offset < start_before
union all
select partition, {NONE}, time_ns, state_epoch, {ShareStateCase.STATE_EPOCH_FELL} from epochs
where state_epoch >= 0 and state_epoch < epoch_before
union all
select partition, {NONE}, time_ns, partition_epoch, {ShareStateCase.LEADER_EPOCH_FELL} from leaders
where partition_epoch >= 0 and partition_epoch < epoch_before
