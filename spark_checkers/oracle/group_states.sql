-- The second opinion on records of consumer groups that KIP-345 and KIP-848 do not permit.

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
from stated_of_group
where kind in (
    {GroupRecord.GROUP_EPOCH}, {GroupRecord.GROUP_GONE}, {GroupRecord.TARGET_EPOCH}, {GroupRecord.MEMBER},
    {GroupRecord.MEMBER_GONE}
)

--- view held_by_member
-- What a member has, from the row that says so until its next record.
select h.*, coalesce(min(n.turn), {FAR}L) as until_turn
from stated_of_group h
left join stated_of_group n on n.world = h.world and n.`group` = h.`group` and n.member = h.member and n.turn > h.turn
    and n.kind in ({GroupRecord.MEMBER}, {GroupRecord.MEMBER_GONE})
where h.kind in ({GroupRecord.OWNED}, {GroupRecord.RELEASING}) and h.partition != {NONE}
group by all

--- view classic_records
-- The protocol of each record of a classic group, and its members: a static one is the same person whatever its id.
with records as (
    select *, row_number() over (partition by world, `group`, log_offset order by turn) as nth
    from stated_of_group where kind = {GroupRecord.CLASSIC}
),
parts as (
    select *, if(kind = {GroupRecord.CLASSIC_PROTOCOL}, name, null) as protocol,
           if(kind = {GroupRecord.CLASSIC_MEMBER}, if(name = {NONE}, concat('id ', member), concat('name ', name)), null) as person
    from stated_of_group where kind in ({GroupRecord.CLASSIC_PROTOCOL}, {GroupRecord.CLASSIC_MEMBER})
)
select r.world, r.turn, count(p.person) as members, sort_array(collect_set(p.person)) as persons,
       max_by(p.person, p.turn) filter (where p.member = r.member) as leading,
       nullif(max_by(p.protocol, p.turn) filter (where p.protocol is not null), {NONE}) as protocol, r.`group`
from records r
join parts p on p.world = r.world and p.`group` = r.`group` and p.log_offset = r.log_offset
where r.nth = 1
group by all

--- view stated_by_protocol
-- Each record of a group as such, by whatever protocol, beside the last ones before it.
with records as (
    select s.*, coalesce(c.members, 0) as members, coalesce(c.persons, array()) as persons, c.leading, c.protocol
    from stated_of_group s
    left join classic_records c on c.world = s.world and c.`group` = s.`group` and c.turn = s.turn
    where s.kind in (
        {GroupRecord.GROUP_EPOCH}, {GroupRecord.GROUP_GONE}, {GroupRecord.CLASSIC}, {GroupRecord.CLASSIC_GONE}
    )
)
select *,
       lag(kind) over (partition by world, `group` order by turn) as kind_before,
       lag(log_offset) over (partition by world, `group` order by turn) as offset_before,
       last_value(
           if(kind in ({GroupRecord.CLASSIC}, {GroupRecord.CLASSIC_GONE}),
              struct(kind, epoch, members, persons, leading, name, protocol), null), true
       ) over (partition by world, `group` order by turn rows between unbounded preceding and 1 preceding) as classic,
       last_value(if(kind in ({GroupRecord.GROUP_EPOCH}, {GroupRecord.GROUP_GONE}), kind, null), true)
           over (partition by world, `group` order by turn rows between unbounded preceding and 1 preceding) as consumer,
       last_value(if(kind = {GroupRecord.GROUP_EPOCH}, epoch, null), true)
           over (partition by world, `group` order by turn rows between unbounded preceding and 1 preceding) as group_epoch
from records

--- view classic_after
-- Each record of a classic group that has one before it, and the group was not deleted in between.
select * from stated_by_protocol where kind = {GroupRecord.CLASSIC} and classic.kind = {GroupRecord.CLASSIC}

--- anomaly illegal-group-state
with broken as (
    select world, `group`, number, member, log_offset, epoch, {GroupStateCase.GENERATION_FELL} as `case` from classic_after
    where epoch < classic.epoch
    union all
    select world, `group`, number, member, log_offset, epoch, {GroupStateCase.GENERATION_REUSED} from classic_after
    where epoch = classic.epoch and not (
        name <=> classic.name and protocol <=> classic.protocol and leading <=> classic.leading and persons <=> classic.persons
    )
    union all
    select world, `group`, number, member, log_offset, epoch, {GroupStateCase.TYPE_CHANGED} from classic_after
    where epoch <= classic.epoch + 1 and name != classic.name and classic.members > 0
    union all
    select world, `group`, number, member, log_offset, epoch, {GroupStateCase.LEADER_NOT_MEMBER} from stated_by_protocol
    where kind = {GroupRecord.CLASSIC} and members > 0 and leading is null
    union all
    select world, `group`, number, member, log_offset, epoch, {GroupStateCase.NOTHING_CHOSEN} from stated_by_protocol
    where kind = {GroupRecord.CLASSIC} and members > 0 and (protocol is null or name = {NONE} or epoch < 1)
    union all
    select world, `group`, number, member, log_offset, epoch, {GroupStateCase.LEFT_BEHIND} from stated_by_protocol
    where kind = {GroupRecord.CLASSIC} and members = 0 and (protocol is not null or member != {NONE})
    union all
    select world, `group`, number, member, log_offset, epoch, {GroupStateCase.MEMBER_TWICE} from stated_by_protocol
    where kind = {GroupRecord.CLASSIC} and members > size(persons)
    union all
    select world, `group`, number, member, log_offset, epoch, {GroupStateCase.TWO_PROTOCOLS} from stated_by_protocol
    where kind = {GroupRecord.CLASSIC} and consumer = {GroupRecord.GROUP_EPOCH}
       or kind = {GroupRecord.GROUP_EPOCH} and classic.kind = {GroupRecord.CLASSIC}
          and (classic.members > 0 or classic.epoch > 0)
    union all
    select world, `group`, number, member, log_offset, epoch, {GroupStateCase.GENERATION_LOST} from stated_by_protocol
    where kind = {GroupRecord.CLASSIC} and members > 0 and kind_before = {GroupRecord.GROUP_GONE} and epoch < group_epoch
      and log_offset = offset_before + 1
),
broken_by_epoch as (
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
    select world, `group`, {NONE}, number, member, log_offset, epoch, `case` from broken_by_epoch
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
