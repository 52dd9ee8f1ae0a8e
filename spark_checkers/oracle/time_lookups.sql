-- The second opinion on look-ups by time: what a leader answered is compared with the headers of the batches in the log.

--- view searched
-- The batches of the longest copy of each partition (of copies that are as long, that of the lowest node), and in front of them
-- those of the remote store, above the log start.
select r.partition, r.base_offset, r.last_offset, r.max_timestamp_ms, c.log_start, c.read_ns,
       if((r.attributes & 8) != 0, r.max_timestamp_ms, r.base_timestamp_ms) as first_ms
from replicas r
join (
    select n.partition, n.log_start, n.node, n.read_ns, min(r.base_offset) as begins
    from (
        select r.partition, f.log_start, max_by(r.node, struct(r.last_offset, -r.node)) as node, max(r.read_ns) as read_ns
        from replicas r
        join fact_partitions f on f.partition = r.partition and not f.compacted
        where r.step = {NONE} and r.last_offset >= f.log_start
        group by r.partition, f.log_start
    ) n
    join replicas r on r.partition = n.partition and r.node = n.node and r.step = {NONE} and r.last_offset >= n.log_start
    group by n.partition, n.log_start, n.node, n.read_ns
) c on c.partition = r.partition and (r.node = c.node or r.node = {REMOTE_STORE} and r.last_offset < c.begins)
where r.step = {NONE} and r.last_offset >= c.log_start

--- anomaly mistimed
with looked as (
    select a.partition, a.node, a.time_ns, a.value as wanted_ms, f.value as found,
           (select max(h.value) from observations h
            where h.partition = a.partition and h.node = a.node and h.time_ns <= a.time_ns
                and h.kind = {ObservationKind.LEADER_HIGH_WATERMARK}) as watermark
    from observations a
    join observations f on f.partition = a.partition and f.node = a.node and f.time_ns = a.time_ns
        and f.kind = {ObservationKind.TIME_FOUND}
    where a.kind = {ObservationKind.TIME_ASKED}
),
known as (
    select l.partition, l.node, l.time_ns, l.wanted_ms, l.found, l.watermark, s.read_ns, s.log_start,
           min_by(struct(b.base_offset, b.last_offset, b.first_ms), b.base_offset) as due
    from looked l
    join (select distinct partition, read_ns, log_start from searched) s on s.partition = l.partition
    left join searched b on b.partition = l.partition and b.max_timestamp_ms >= l.wanted_ms
    group by l.partition, l.node, l.time_ns, l.wanted_ms, l.found, l.watermark, s.read_ns, s.log_start
),
judged as (
    select k.partition, k.node, k.time_ns, k.found, k.read_ns, k.due.base_offset as due_base,
           case when k.found = {NONE} and k.due.last_offset < k.watermark then {LookupCase.NOTHING}
                when h.base_offset is null then null
                when k.due is null or h.base_offset < k.due.base_offset then {LookupCase.EARLIER}
                when h.base_offset > k.due.base_offset then {LookupCase.PAST}
                when k.due.base_offset >= k.log_start and k.due.first_ms >= k.wanted_ms and k.found != k.due.base_offset
                    then {LookupCase.PAST} end as case
    from known k
    left join searched h on h.partition = k.partition and k.found between h.base_offset and h.last_offset
)
select partition, node as reader, time_ns as begin_ns, read_ns as end_ns, found as log_offset,
       coalesce(due_base, {NONE}) as other_offset, case
from judged where case is not null
