-- The second opinion on changes in the controllers' log that no KIP permits.

--- view broker_record
-- What the log says of each broker, at the greatest time that it had come to. KRaft's controllers register a broker as a fenced one.
with stated as (
    select world, node, log_position, row, kind,
           lead(kind) over (partition by world order by log_position, row) as kind_behind,
           lead(node) over (partition by world order by log_position, row) as node_behind,
           lead(log_position) over (partition by world order by log_position, row) as position_behind,
           max(time_ns) over (partition by world order by log_position, row) as at_ns
    from metadata
    where source = {TRUTH} and kind in (
        {MetadataKind.BROKER_REGISTERED}, {MetadataKind.BROKER_FENCED},
        {MetadataKind.BROKER_UNFENCED}
    )
),
kraft as (
    select distinct world, node from stated
    where kind = {MetadataKind.BROKER_REGISTERED} and kind_behind = {MetadataKind.BROKER_FENCED}
      and node_behind = node and position_behind = log_position and node between 0 and 62
)
select s.world, s.node, s.log_position, s.row, s.at_ns, s.kind = {MetadataKind.BROKER_UNFENCED} as free,
       lag(s.kind) over (partition by s.world, s.node order by s.log_position, s.row) = {MetadataKind.BROKER_UNFENCED}
           as was_free
from stated s join kraft k on k.world = s.world and k.node = s.node

--- view change
-- Each change of a partition beside the one before it, of the same topic.
with own as (
    select m.*, f.world as of_world,
           max(m.time_ns) over (partition by m.partition order by m.log_position, m.row) as own_ns
    from metadata m join fact_partitions f on f.partition = m.partition
    where m.source = {TRUTH} and m.kind in ({OF_PARTITION}, {DELETED})
),
timed as (
    select o.partition, o.row, any_value(o.of_world) as world, any_value(o.log_position) as log_position,
           any_value(o.topic_id_high) as topic_id_high, any_value(o.topic_id_low) as topic_id_low,
           any_value(o.leader) as leader, any_value(o.leader_epoch) as epoch, any_value(o.isr) as isr,
           any_value(o.elr) as elr, any_value(o.replicas) as replicas, any_value(o.recovering) = 1 as recovering,
           any_value(o.kind) = {DELETED} as ended,
           greatest(any_value(o.own_ns), coalesce(max(b.at_ns), any_value(o.own_ns))) as at_ns
    from own o left join broker_record b on b.world = o.of_world and b.log_position <= o.log_position
    group by o.partition, o.row
)
select *,
       lag(leader) over w as leader_before, lag(epoch) over w as epoch_before, lag(isr) over w as isr_before,
       lag(elr) over w as elr_before, lag(replicas) over w as replicas_before, lag(recovering) over w as recovering_before,
       lag(ended) over w as ended_before, lead(at_ns) over w as until_ns
from timed
window w as (partition by partition, topic_id_high, topic_id_low order by log_position, row)

--- view fenced_then
-- The brokers that were fenced right before a change, and of which no record of the same time says otherwise.
select c.partition, c.row, b.node
from change c join broker_record b on b.world = c.world
group by c.partition, c.row, b.node
having not coalesce(max_by(b.free, if(b.at_ns < c.at_ns, struct(b.log_position, b.row), null)), false)
   and not max(b.at_ns = c.at_ns and b.free)

--- fragment OF_BROKER
{ClusterRecord.REGISTERED}, {ClusterRecord.CHANGED}, {ClusterRecord.UNREGISTERED}

--- view stated_in_cluster
-- Each row about brokers and features, numbered in the order of the log. `level_now`: of a row's feature, with the row itself.
select *, last_value(if(kind = {ClusterRecord.FEATURE}, level, null), true) over w as level_now,
       lag(if(kind = {ClusterRecord.FEATURE}, level, null)) ignore nulls over w as level_before
from (select *, row_number() over (partition by world order by log_offset, row) as turn from cluster_states)
window w as (partition by world, feature order by turn)

--- view stated_of_broker
-- Each record about a broker, its directories, and what features it supports. `record`: the number of its record.
with own as (
    select *, last_value(if(kind in ({OF_BROKER}), turn, null), true) over (partition by world order by turn) as record
    from stated_in_cluster
    where kind in ({OF_BROKER}, {ClusterRecord.DIRECTORY}, {ClusterRecord.SUPPORTED})
)
select *, max(kind = {ClusterRecord.DIRECTORY}) over (partition by world, record) as has_directories from own
where record is not null

--- view change_of_broker
-- Each record about a broker beside its last registration, and what changed that.
select *, known.kind is not null and known.kind = {ClusterRecord.REGISTERED} as there, coalesce(
           known.kind = {ClusterRecord.REGISTERED} and known.id_high = id_high and known.id_low = id_low, false
       ) as same_process
from (
    select s.*, p.log_offset is null as in_log,
           last_value(if(s.kind != {ClusterRecord.CHANGED}, struct(s.kind, s.broker_epoch, s.id_high, s.id_low), null), true)
               over w as known,
           coalesce(last_value(nullif(s.fenced, {NONE}), true) over w, 0) as fenced_before,
           coalesce(
               last_value(if(s.kind = {ClusterRecord.REGISTERED} or s.shutting_down = 1, s.shutting_down, null), true) over w, 0
           ) as shut_before,
           coalesce(max(s.log_offset) over (
               partition by s.world order by s.log_offset range between unbounded preceding and 1 preceding
           ), {NONE}) as seen
    from stated_of_broker s
    left join (select distinct world, log_offset from cluster_states where kind = {ClusterRecord.SNAPSHOT}) p
        on p.world = s.world and p.log_offset = s.log_offset
    where s.kind in ({OF_BROKER})
    window w as (partition by s.world, s.node order by s.turn rows between unbounded preceding and 1 preceding)
)

--- view directory
-- Each directory of a record, and how long its broker has it: until the next record that says what that broker has.
with says as (
    select world, node, record, lead(record) over w as until_record, row_number() over w as number
    from stated_of_broker
    where kind in ({ClusterRecord.REGISTERED}, {ClusterRecord.UNREGISTERED})
       or (kind = {ClusterRecord.CHANGED} and has_directories)
    window w as (partition by world, node order by record)
)
select d.*, s.until_record, s.number, r.kind as record_kind
from stated_of_broker d
join says s on s.world = d.world and s.record = d.record and s.node = d.node
join stated_of_broker r on r.world = d.world and r.turn = d.record
where d.kind = {ClusterRecord.DIRECTORY}

--- view illegal_of_cluster
select world, log_offset, broker_epoch as sequence, {TransitionCase.BROKER_EPOCH_NOT_NEW} as `case` from change_of_broker
where kind = {ClusterRecord.REGISTERED} and in_log and not (there and known.broker_epoch = broker_epoch)
  and (broker_epoch <= seen or broker_epoch > log_offset)
union all
select world, log_offset, broker_epoch, {TransitionCase.EPOCH_OF_ANOTHER} from change_of_broker
where kind = {ClusterRecord.REGISTERED} and there and known.broker_epoch = broker_epoch
  and not (same_process and (fenced = 1) = (fenced_before = 1) and (shutting_down = 1) = (shut_before = 1))
union all
select world, log_offset, broker_epoch, {TransitionCase.REGISTERED_UNFENCED} from change_of_broker
where kind = {ClusterRecord.REGISTERED} and in_log and not same_process and (fenced != 1 or shutting_down = 1)
union all
select world, log_offset, broker_epoch, {TransitionCase.BROKER_NOT_REGISTERED} from change_of_broker
where kind != {ClusterRecord.REGISTERED} and not there
union all
select world, log_offset, broker_epoch, {TransitionCase.BROKER_EPOCH_STALE} from change_of_broker
where kind != {ClusterRecord.REGISTERED} and there and known.broker_epoch != broker_epoch
union all
select world, log_offset, broker_epoch, {TransitionCase.SHUTDOWN_OF_FENCED} from change_of_broker
where kind = {ClusterRecord.CHANGED} and shutting_down = 1 and there and fenced_before = 1
union all
select distinct a.world, a.log_offset, a.broker_epoch, {TransitionCase.DIRECTORY_OF_TWO}
from directory a join directory b on b.world = a.world and b.id_high = a.id_high and b.id_low = a.id_low
where b.node != a.node and b.turn < a.turn and (b.until_record is null or b.until_record > a.turn)
union all
select distinct a.world, a.log_offset, a.broker_epoch, {TransitionCase.DIRECTORY_CAME_BACK}
from directory a left join directory b on b.world = a.world and b.node = a.node and b.number = a.number - 1
    and b.id_high = a.id_high and b.id_low = a.id_low
where a.record_kind = {ClusterRecord.CHANGED} and b.turn is null
union all
select distinct world, log_offset, broker_epoch, {TransitionCase.BROKER_BEYOND_LEVEL} from stated_of_broker
where kind = {ClusterRecord.SUPPORTED} and level_now > 0 and level_now not between lowest and level
union all
select distinct f.world, f.log_offset, f.level, {TransitionCase.LEVEL_BEYOND_BROKER}
from stated_in_cluster f
join (
    select world, node, turn, kind, lead(turn) over (partition by world, node order by turn) as until_turn
    from stated_in_cluster where kind in ({ClusterRecord.REGISTERED}, {ClusterRecord.UNREGISTERED})
) r on r.world = f.world and r.turn < f.turn and (r.until_turn is null or r.until_turn > f.turn)
left join stated_of_broker s
    on s.world = r.world and s.record = r.turn and s.kind = {ClusterRecord.SUPPORTED} and s.feature = f.feature
    and f.level between s.lowest and s.level
where f.kind = {ClusterRecord.FEATURE} and r.kind = {ClusterRecord.REGISTERED} and f.level > 0 and s.turn is null
union all
select world, log_offset, level, {TransitionCase.METADATA_VERSION_LOWERED} from stated_in_cluster
where kind = {ClusterRecord.FEATURE} and feature = {METADATA_VERSION} and level < level_before
  and exists(array(8, 11, 13, 14, 15, 17, 23, 30, 32, 33), changed -> changed > level and changed <= level_before)
union all
select f.world, f.log_offset, f.level, {TransitionCase.FEATURE_BEYOND_METADATA}
from stated_in_cluster f
left join stated_in_cluster m
    on m.world = f.world and m.kind = f.kind and m.feature = {METADATA_VERSION} and (m.turn < f.turn or m.time_ns = f.time_ns)
where f.kind = {ClusterRecord.FEATURE} and f.feature = {ELR_VERSION} and f.level > 0
group by f.world, f.log_offset, f.turn, f.level, f.time_ns
having coalesce(max_by(m.level, m.turn) filter (where m.turn < f.turn), 0) < 23
   and not coalesce(bool_or(m.level >= 23) filter (where m.time_ns = f.time_ns), false)
union all
select world, log_offset, {NONE}, {TransitionCase.SETTING_OF_NO_TOPIC} from cluster_states
where kind = {ClusterRecord.CONFIGURED} and id_high = {NONE} and id_low = {NONE}

--- anomaly illegal-transition
with broken as (
    select c.*, {TransitionCase.EPOCH_IS_NOT_NEXT} as `case` from change c
    where not ended and epoch_before is not null and epoch - epoch_before not in (0, 1)
    union all
    select c.*, {TransitionCase.LEADER_WITHOUT_EPOCH} from change c
    where not ended and leader != leader_before and epoch = epoch_before
    union all
    select c.*, {TransitionCase.LEADER_NOT_IN_SYNC} from change c
    where not ended and leader >= 0 and (isr >> leader) & 1 = 0
    union all
    select c.*, {TransitionCase.IN_SYNC_WITHOUT_REPLICA} from change c
    where not ended and replicas != 0 and (isr | elr) & ~replicas != 0
    union all
    select c.*, {TransitionCase.CHANGED_AFTER_ITS_END} from change c where ended_before
    union all
    select c.*, {TransitionCase.FENCED_BROKER_LEADS} from change c
    where not ended and exists (
        select 1 from broker_record b
        where b.world = c.world and b.node = c.leader and not b.free and coalesce(b.was_free, true)
          and b.at_ns > c.at_ns and (c.until_ns is null or b.at_ns < c.until_ns)
    )
    union all
    select c.*, {TransitionCase.UNCLEAN_AND_UNRECORDED} from change c
    where leader >= 0 and leader != leader_before and not recovering
      and exists (select 1 from broker_record b where b.world = c.world)
      and ((isr_before | elr_before | if(replicas_before & ~replicas != 0, isr, 0)) >> leader) & 1 = 0
    union all
    select c.*, {TransitionCase.RECOVERS_AMONG_OTHERS} from change c
    where not ended and recovering and bit_count(isr) > 1
    union all
    select c.*, {TransitionCase.RECOVERED_BY_ANOTHER} from change c
    where leader >= 0 and leader != leader_before and recovering_before and not recovering
    union all
    select c.*, {TransitionCase.FENCED_BROKER_JOINS} from change c
    where not ended and exists (
        select 1 from fenced_then f
        where f.partition = c.partition and f.row = c.row and ((c.isr & ~c.isr_before) >> f.node) & 1 = 1
    )
    union all
    select c.*, {TransitionCase.FENCED_BROKER_ELECTED} from change c
    where leader >= 0 and leader != leader_before and exists (
        select 1 from fenced_then f where f.partition = c.partition and f.row = c.row and f.node = c.leader
    )
    union all
    select c.*, {TransitionCase.ELIGIBLE_AND_IN_SYNC} from change c where not ended and isr & elr != 0
    union all
    select c.*, {TransitionCase.ELIGIBLE_FROM_NOWHERE} from change c
    where not ended and elr & ~(isr_before | elr_before) != 0
)
select partition, `case`, log_position as log_offset, epoch as sequence from broken
union all
select f.partition, b.`case`, b.log_offset, b.sequence
from illegal_of_cluster b
join (select world, min(partition) as partition from fact_partitions where cell != {NONE} group by world, cell) f
    on f.world = b.world
