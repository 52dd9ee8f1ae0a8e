-- The second opinion on cycles among transactions: which committed transaction depends on which.
--
-- SQL says which edges there are, and `circles.py` which transactions reach one another. Terms are Adya's: wr, the second
-- transaction read what the first wrote; ww, it wrote behind the first. `kind` of an edge: the case of `information-cycle`
-- for its reads, and {BY_WRITES_ALONE} for the order of writes.

--- view reads_until
-- Until when a client reads inside its transaction: until the end is invoked.
select world, client, transaction, begun_ns, if(end_invoked_ns = {MISSING}, {FOREVER}, end_invoked_ns) as until_ns
from transactions where transaction != {NONE}

--- view depends_by_reading
-- By whom a record of a transaction was given to a client inside another one, the last that it had begun.
select q.cell, h.world, h.client, h.transaction, h.reader as on_client, y.transaction as on_transaction,
       if(h.committed, {EarlyCase.READ_COMMITTED}, {EarlyCase.READ_UNCOMMITTED}) as kind
from showing h
join fact_partitions q on q.partition = h.partition
join reads_until y
    on y.world = h.world and y.client = h.reader and y.begun_ns <= h.read_ns and h.read_ns <= y.until_ns
left anti join transactions n
    on n.world = h.world and n.client = h.reader and n.transaction > y.transaction and n.begun_ns <= h.read_ns
where not h.by_audit

--- view depends_by_writing
-- Whose record stands next in V, among those of committed transactions.
select cell, world, client, transaction, on_client, on_transaction, {BY_WRITES_ALONE} as kind
from (
    select t.cell, l.world, t.client, t.transaction, lead(t.client) over behind as on_client,
           lead(t.transaction) over behind as on_transaction
    from log l
    join fact_partitions q on q.partition = l.partition
    join transacted s on s.partition = l.partition and s.client = l.sender and s.sequence = l.sequence
    join settled t
        on t.world = l.world and t.cell = q.cell and t.client = s.client and t.transaction = s.transaction
        and t.committed
    where l.level = {COMMITTED} and not l.unreadable
    window behind as (partition by l.partition order by l.log_offset)
)
where on_client is not null

--- view depends
-- Each edge between two committed transactions once, and a partition of their cell.
select distinct c.somewhere, e.client, e.transaction, e.on_client, e.on_transaction, e.kind
from (select * from depends_by_reading union all select * from depends_by_writing) e
join settled a
    on a.world = e.world and a.cell = e.cell and a.client = e.client and a.transaction = e.transaction and a.committed
join settled b
    on b.world = e.world and b.cell = e.cell and b.client = e.on_client and b.transaction = e.on_transaction
    and b.committed
join (select world, cell, min(partition) as somewhere from fact_partitions group by world, cell) c
    on c.world = e.world and c.cell = e.cell
where e.client != e.on_client or e.transaction != e.on_transaction

--- anomaly information-cycle
select * from depends where kind != {BY_WRITES_ALONE}

--- anomaly write-cycle
select * from depends
