-- The second opinion on records of the transaction log that no KIP permits.

--- view logged_state
-- Each record, numbered by transactional.id. `seen`: no record of the log is missing since the one before it. `given_up`: its
-- append may have failed. `firm`: how many up to here were not given up.
with offsets as (
    select *, lag(log_offset) over (partition by world, number order by log_offset) as offset_before
    from transaction_states
),
holed as (
    select *, sum(if(log_offset = coalesce(offset_before, -1) + 1, 0, 1)) over (
               partition by world, number order by log_offset
           ) as holes
    from offsets
),
own as (
    select *, row_number() over w as turn, coalesce((lag(holes) over w), 0) = holes as seen,
           coalesce(
               (lead(leader_epoch) over w) = leader_epoch
               and (lead(time_ns) over w) - time_ns not between 0 and {GIVEN_UP_NS} - 1, false
           ) as given_up
    from holed where transactional_id != {NONE}
    window w as (partition by world, transactional_id order by number, log_offset)
)
select *, sum(if(given_up, 0, 1)) over (partition by world, transactional_id order by turn) as firm from own

--- view followed_state
-- Each record beside every record that it may follow: the one before it, and those in front of appends that may have failed.
-- `broken`: the rules that forbid it.
with begun as (
    select world, transactional_id, turn, state, producer_id, producer_epoch, partitions, firm from logged_state
    union all
    select distinct world, transactional_id, 0, {NONE}, {NONE}, {NONE}, {NONE}, 0 from logged_state
),
paired as (
    select a.*, b.turn as turn_before, b.state as state_before, b.producer_id as id_before,
           b.producer_epoch as epoch_before, b.partitions as partitions_before,
           a.producer_id = b.producer_id and a.producer_id != {NONE} as same
    from logged_state a
    join begun b on b.world = a.world and b.transactional_id = a.transactional_id and b.turn < a.turn
        and b.firm = a.firm - if(a.given_up, 0, 1)
)
select *, filter(array(
    if(((state_before = {TransactionState.PREPARE_COMMIT} and state != {TransactionState.COMPLETE_COMMIT})
        or (state_before = {TransactionState.PREPARE_ABORT} and state != {TransactionState.COMPLETE_ABORT}))
       and not (same and state = state_before and producer_epoch = epoch_before), {TransactionCase.TAKEN_BACK}, null),
    if(((state = {TransactionState.COMPLETE_COMMIT} and state_before != {TransactionState.PREPARE_COMMIT})
        or (state = {TransactionState.COMPLETE_ABORT} and state_before != {TransactionState.PREPARE_ABORT}))
       and not (same and state = state_before and producer_epoch = epoch_before), {TransactionCase.UNDECIDED}, null),
    if((state_before in ({AT_REST}, {TransactionState.FORGOTTEN}) and state = {TransactionState.PREPARE_COMMIT})
       or (state_before in ({AT_REST}) and state = {TransactionState.PREPARE_ABORT} and client_version < 2)
       or (state_before = {TransactionState.FORGOTTEN} and state = {TransactionState.PREPARE_ABORT}),
       {TransactionCase.DECIDED_NOTHING}, null),
    if(state_before = {TransactionState.ONGOING}
       and state in ({TransactionState.EMPTY}, {TransactionState.FORGOTTEN}), {TransactionCase.DROPPED}, null),
    if(state_before = {TransactionState.FORGOTTEN} and state = {TransactionState.ONGOING},
       {TransactionCase.NEVER_INITIALISED}, null),
    if(same and producer_epoch < epoch_before, {TransactionCase.EPOCH_FELL}, null),
    if(same and producer_epoch != epoch_before
       and (state in ({TransactionState.ONGOING}, {TransactionState.COMPLETE_COMMIT}, {TransactionState.COMPLETE_ABORT})
            or (state = {TransactionState.PREPARE_COMMIT} and client_version < 2)),
       {TransactionCase.EPOCH_IN_TRANSACTION}, null),
    if(producer_id != id_before and state_before != {TransactionState.FORGOTTEN}
       and state not in ({TransactionState.FORGOTTEN}, {TransactionState.EMPTY})
       and not (state in ({TransactionState.COMPLETE_COMMIT}, {TransactionState.COMPLETE_ABORT}) and client_version >= 2),
       {TransactionCase.PRODUCER_CHANGED}, null),
    if(state_before = {TransactionState.ONGOING}
       and ((state = {TransactionState.ONGOING} and partitions < partitions_before)
            or (state in ({TransactionState.PREPARE_COMMIT}, {TransactionState.PREPARE_ABORT})
                and partitions != partitions_before)), {TransactionCase.PARTITIONS_CHANGED}, null),
    if(state in ({AT_REST}) and partitions > 0, {TransactionCase.PARTITIONS_LEFT}, null),
    if(state_before = {TransactionState.ONGOING} and same and client_version >= 2 and producer_epoch = epoch_before
       and state in ({TransactionState.PREPARE_COMMIT}, {TransactionState.PREPARE_ABORT}) and epoch_before < 32767,
       {TransactionCase.EPOCH_NOT_RAISED}, null)
), rule -> rule is not null) as broken
from paired

--- fragment AT_REST
{TransactionState.EMPTY}, {TransactionState.COMPLETE_COMMIT}, {TransactionState.COMPLETE_ABORT}

--- anomaly illegal-transaction-state
with unexplained as (
    select world, transactional_id as client, number as reader, log_offset, any_value(producer_epoch) as sequence,
           max_by(broken, turn_before) as broken, min(size(broken)) as fewest
    from followed_state where seen group by world, transactional_id, number, log_offset
)
select c.first as partition, u.client, u.reader, u.log_offset, u.sequence, explode(u.broken) as `case`
from unexplained u
join fact_serving s on s.world = u.world and s.client = u.client
join (select world, cell, min(partition) as first from fact_partitions group by world, cell) c
    on c.world = s.world and c.cell = s.cell
where u.fewest > 0
