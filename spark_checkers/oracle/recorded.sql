-- What the second opinion reads for itself of a run: how far audits read, where logs begin, and what clients were.
--
-- `facts.py` gives what was planned (`planned_partitions`, `planned_clients`). The reading that kernels rely on
-- (`prozess.harness.history.participants`) has no part in these columns: a mistake there does not reach both opinions.

--- view fact_partitions
-- The latest audit of a level counts, if `reads` has the sentinel that it says it read. The greatest log start counts.
with claim as (
    select partition, isolation, value as log_offset, client,
           row_number() over (partition by partition, isolation order by time_ns desc, row desc) as newest
    from observations where kind = {ObservationKind.AUDIT_COMPLETE}
),
ends as (
    select c.partition,
           max(case when c.isolation = {UNCOMMITTED} then c.log_offset end) as end_uncommitted,
           max(case when c.isolation = {COMMITTED} then c.log_offset end) as end_committed
    from claim c
    left semi join reads r
        on r.partition = c.partition and r.log_offset = c.log_offset and r.client = c.client and r.sender = {SENTINEL}
    where c.newest = 1 group by c.partition
),
begins as (
    select partition, max(value) as log_start from observations where kind = {ObservationKind.LOG_START}
    group by partition
)
select p.* except (log_start, end_uncommitted, end_committed), coalesce(b.log_start, 0) as log_start,
       e.end_uncommitted, e.end_committed
from planned_partitions p
left join ends e on e.partition = p.partition
left join begins b on b.partition = p.partition

--- view fact_clients
-- A client is what it reported itself, else what was planned.
select p.* except (role, isolation, clock), coalesce(c.role, p.role) as role,
       coalesce(c.isolation, p.isolation) as isolation, coalesce(c.clock, p.clock) as clock
from planned_clients p
left join clients c on c.client = p.client
