-- The second opinion on records of consumer groups that KIP-848 does not permit.

--- view stated_of_group
-- Each row of a cell's group, numbered in the order of the log.
select *, row_number() over (partition by world, `group` order by log_offset, row) as turn
from group_states where `group` != {NONE}

--- view epoch_before
-- Each epoch beside the last one of the same group or member, if that was not gone, and the last ones that bound it.
select *,
       lag(struct(kind, epoch)) over (
           partition by world, `group`, member,
                        case when kind in ({GroupRecord.GROUP_EPOCH}, {GroupRecord.GROUP_GONE}) then 1
                             when kind = {GroupRecord.TARGET_EPOCH} then 2 else 3 end
           order by turn
       ) as before,
       last_value(if(kind in ({GroupRecord.GROUP_EPOCH}, {GroupRecord.GROUP_GONE}), epoch, null), true) over (
           partition by world, `group` order by turn rows between unbounded preceding and 1 preceding
       ) as group_epoch,
       last_value(if(kind in ({GroupRecord.TARGET_EPOCH}, {GroupRecord.GROUP_GONE}), epoch, null), true) over (
           partition by world, `group` order by turn rows between unbounded preceding and 1 preceding
       ) as target_epoch,
       last_value(if(kind = {GroupRecord.TARGET_EPOCH}, epoch, if(kind = {GroupRecord.GROUP_GONE}, {NONE}, null)), true) over (
           partition by world, `group` order by turn rows between unbounded preceding and 1 preceding
       ) as target_before
from stated_of_group where kind not in ({GroupRecord.OWNED}, {GroupRecord.RELEASING})

--- view held_by_member
-- What a member has, from the row that says so until its next record.
select h.*, coalesce(min(n.turn), {FAR}L) as until_turn
from stated_of_group h
left join stated_of_group n on n.world = h.world and n.`group` = h.`group` and n.member = h.member and n.turn > h.turn
    and n.kind in ({GroupRecord.MEMBER}, {GroupRecord.MEMBER_GONE})
where h.kind in ({GroupRecord.OWNED}, {GroupRecord.RELEASING}) and h.partition != {NONE}
group by all

--- anomaly illegal-group-state
with broken as (
    select *, {GroupStateCase.GROUP_EPOCH_FELL} as `case` from epoch_before
    where kind = {GroupRecord.GROUP_EPOCH} and before.epoch >= 0 and epoch >= 0 and epoch < before.epoch
    union all
    select *, {GroupStateCase.TARGET_EPOCH_FELL} from epoch_before
    where kind = {GroupRecord.TARGET_EPOCH} and target_before >= 0 and epoch >= 0 and epoch < target_before
    union all
    select *, {GroupStateCase.MEMBER_EPOCH_FELL} from epoch_before
    where kind = {GroupRecord.MEMBER} and before.epoch >= 0 and epoch >= 0 and epoch < before.epoch
    union all
    select *, {GroupStateCase.TARGET_BEYOND_GROUP} from epoch_before
    where kind = {GroupRecord.TARGET_EPOCH} and group_epoch >= 0 and epoch > group_epoch
    union all
    select *, {GroupStateCase.MEMBER_BEYOND_TARGET} from epoch_before
    where kind = {GroupRecord.MEMBER} and target_epoch >= 0 and epoch > target_epoch
),
found as (
    select world, `group`, {NONE} as partition, number, member, log_offset, epoch, `case` from broken
    union all
    select a.world, a.`group`, a.partition, a.number, a.member, a.log_offset, a.epoch, {GroupStateCase.OWNED_TWICE}
    from held_by_member a
    where exists (
        select 1 from held_by_member b
        where b.world = a.world and b.`group` = a.`group` and b.partition = a.partition and b.member != a.member
          and b.turn < a.turn and b.until_turn > a.turn
    )
)
select if(f.partition < 0, c.first, f.partition) as partition, f.number as other_client, f.member as reader,
       f.log_offset, f.epoch as sequence, f.`case`
from found f
join (select world, cell, min(partition) as first from fact_partitions group by world, cell) c
    on c.world = f.world and c.cell = f.`group`
