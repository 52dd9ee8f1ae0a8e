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
