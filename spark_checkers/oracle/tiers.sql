-- Tiered storage: what the remote store and the brokers' own logs have of a partition, and whether it fits.

--- view remote_segment
-- The segments of each partition at the end, and up to which offset the object of one is there.
select s.partition, s.state, s.first_offset, s.whole_to,
       greatest(s.last_offset, s.whole_to - 1, s.first_offset) + 1 as until
from remote_segments s
join fact_partitions f on f.partition = s.partition and f.tiered
where s.step = {NONE} and s.current = 1

--- anomaly remote-gap
with broker as (
    select c.partition, c.node, greatest(f.log_start, 0) as low, c.log_start as high
    from fact_copies c
    join fact_partitions f on f.partition = c.partition and f.tiered
    where c.log_start > f.log_start
),
edge as (
    select distinct partition, node, at from (
        select b.partition, b.node, e.at
        from broker b
        join (
            select partition, first_offset as at from remote_segment
            union all select partition, until from remote_segment
            union all select partition, whole_to from remote_segment where whole_to != {NONE}
        ) e on e.partition = b.partition and e.at between b.low and b.high
        union all select partition, node, low from broker
        union all select partition, node, high from broker
    )
),
stretch as (
    select partition, node, at as first_of, next_at from (
        select *, lead(at) over (partition by partition, node order by at) as next_at from edge
    ) where next_at is not null
),
judged as (
    select t.partition, t.node, t.first_of, t.next_at,
           coalesce(bool_or(s.state = {RemoteState.COPIED} and s.whole_to > t.first_of), false) as whole,
           coalesce(bool_or(s.state in ({RemoteState.DELETING}, {RemoteState.DELETED})), false) as deleted,
           coalesce(bool_or(s.state = {RemoteState.COPIED} and s.whole_to = {NONE}), false) as gone,
           coalesce(bool_or(s.state = {RemoteState.COPIED}), false) as copied,
           coalesce(bool_or(s.state = {RemoteState.COPYING}), false) as copying
    from stretch t
    left join remote_segment s
        on s.partition = t.partition and s.first_offset <= t.first_of and s.until > t.first_of
    group by t.partition, t.node, t.first_of, t.next_at
)
select partition, node as reader, first_of as log_offset, next_at - 1 as other_offset,
       case when deleted then {GapCase.TAKEN} when gone then {GapCase.GONE} when copied then {GapCase.DAMAGED}
            when copying then {GapCase.UNFINISHED} else {GapCase.NEVER_COPIED} end as case
from judged where not whole

--- view tier_batch
-- The batches of the remote store alone, and those of it and of each broker's log together: each once.
select partition, pool, base_offset, last_offset, leader_epoch, size, max_timestamp_ms, base_timestamp_ms, attributes, records,
       checksum, base_sequence, producer_epoch, producer_id, min(node) as node
from (
    select r.*, p.pool
    from replicas r
    join fact_partitions f on f.partition = r.partition and f.tiered and r.last_offset >= f.log_start
    join (
        select partition, node as pool from fact_copies
        union all select partition, {REMOTE_STORE} from fact_partitions
    ) p on p.partition = r.partition and r.node in ({REMOTE_STORE}, p.pool)
    where r.step = {NONE}
)
group by partition, pool, base_offset, last_offset, leader_epoch, size, max_timestamp_ms, base_timestamp_ms, attributes,
         records, checksum, base_sequence, producer_epoch, producer_id

--- view tier_conflict
select * from (
    select *, case
        when base_offset <= max(last_offset) over before_it then {RemoteCase.TWIN}
        when leader_epoch < lag(leader_epoch) over in_order and node != lag(node) over in_order then {RemoteCase.EPOCH_FELL}
        end as case
    from tier_batch
    window in_order as (
        partition by partition, pool
        order by base_offset, size, max_timestamp_ms, base_timestamp_ms, attributes, records, checksum, base_sequence,
                 producer_epoch, producer_id, leader_epoch, last_offset, node
    ),
    before_it as (
        partition by partition, pool
        order by base_offset, size, max_timestamp_ms, base_timestamp_ms, attributes, records, checksum, base_sequence,
                 producer_epoch, producer_id, leader_epoch, last_offset, node
        rows between unbounded preceding and 1 preceding
    )
)
where case is not null

--- anomaly remote-conflict
select c.partition, c.pool as reader, c.base_offset as log_offset, c.case
from tier_conflict c
left anti join tier_conflict a
    on a.partition = c.partition and a.pool = {REMOTE_STORE} and c.pool != {REMOTE_STORE} and c.node = {REMOTE_STORE}
    and a.base_offset = c.base_offset and a.last_offset = c.last_offset and a.leader_epoch = c.leader_epoch
    and a.size = c.size and a.max_timestamp_ms = c.max_timestamp_ms and a.base_timestamp_ms = c.base_timestamp_ms
    and a.attributes = c.attributes and a.records = c.records and a.checksum = c.checksum
    and a.base_sequence = c.base_sequence and a.producer_epoch = c.producer_epoch and a.producer_id = c.producer_id
where exists (select 1 from tier_batch b where b.partition = c.partition and b.pool = {REMOTE_STORE})

--- view tier_alive
-- When the sentinel was acknowledged: brokers still ran.
select partition, max(completed_ns) as alive_ns from sends
where client = {SENTINEL} and outcome = {OK} group by partition

--- anomaly remote-left
with made as (
    select partition, min_by(struct(time_ns, topic_id_high, topic_id_low), struct(time_ns, log_position)) as earliest
    from metadata where kind = {OF_PARTITION} and source = {TRUTH} group by partition
),
gone as (
    select partition, topic_id_high, topic_id_low, max(time_ns) as time_ns
    from metadata where kind = {DELETED} and source = {TRUTH} group by partition, topic_id_high, topic_id_low
),
let_go as (
    select s.partition, s.first_offset, s.last_offset, s.read_ns, s.current = 1 as own, f.tier_within_ns, a.alive_ns,
           case when s.current = 1 then (
               select min(o.time_ns) from observations o
               where o.partition = s.partition and o.kind = {ObservationKind.LEADER_LOG_START} and o.value > s.last_offset
           )
           when g.time_ns is not null then g.time_ns
           when m.earliest.topic_id_high != s.topic_id_high or m.earliest.topic_id_low != s.topic_id_low then m.earliest.time_ns
           end as since_ns
    from remote_segments s
    join fact_partitions f on f.partition = s.partition and f.tiered and f.remote_read
    left join tier_alive a on a.partition = s.partition
    left join gone g on g.partition = s.partition and g.topic_id_high = s.topic_id_high and g.topic_id_low = s.topic_id_low
    left join made m on m.partition = s.partition
    where s.step = {NONE} and s.last_offset != {NONE} and s.stored_size != {NONE}
)
select partition, {REMOTE_STORE} as reader, first_offset as log_offset, last_offset as other_offset, since_ns as begin_ns,
       if(own, {LeftCase.BELOW_START}, {LeftCase.TOPIC_DELETED}) as case
from let_go
where since_ns is not null and if(own, since_ns + tier_within_ns <= alive_ns,
                                  since_ns + tier_within_ns + 20000000000 <= read_ns)

--- anomaly uncopied
with furthest as (
    select partition, max_by(node, struct(log_end, -node)) as node from fact_copies group by partition
),
behind as (
    select f.partition, c.node, f.segment_bytes, f.tier_within_ns,
           greatest(f.log_start, c.log_start, coalesce((
               select max(s.last_offset) from remote_segments s
               where s.partition = f.partition and s.step = {NONE} and s.current = 1 and s.state >= {RemoteState.COPIED}
           ), -1) + 1) as first_left
    from fact_partitions f
    join furthest w on w.partition = f.partition
    join fact_copies c on c.partition = w.partition and c.node = w.node
    where f.tiered and f.remote_read and f.segment_bytes is not null
),
grown as (
    select b.*, r.base_offset,
           sum(r.size) over (partition by r.partition order by r.base_offset) as bytes,
           max(r.attributes & 16) over (partition by r.partition order by r.base_offset) as transactional
    from behind b
    join replicas r on r.partition = b.partition and r.node = b.node and r.step = {NONE} and r.last_offset >= b.first_left
),
beyond as (
    select partition, node, first_left, tier_within_ns, min(struct(base_offset, transactional)) as next_batch
    from grown where bytes > segment_bytes group by partition, node, first_left, tier_within_ns
),
reached as (
    select o.partition, o.node, o.first_left, o.next_batch.base_offset as next_offset, o.tier_within_ns,
           min(s.completed_ns) as full_ns
    from beyond o
    join sends s on s.partition = o.partition and s.outcome = {OK} and s.log_offset >= o.next_batch.base_offset
    where o.next_batch.transactional = 0
    group by o.partition, o.node, o.first_left, o.next_batch.base_offset, o.tier_within_ns
)
select r.partition, r.node as reader, r.first_left as log_offset, r.next_offset - 1 as other_offset, r.full_ns as begin_ns
from reached r join tier_alive a on a.partition = r.partition
where r.full_ns + r.tier_within_ns <= a.alive_ns
