"""The second opinion on the log and on transactions: one SQL text for each anomaly.

The columns of a text are those columns of the witnesses that name what was found. Cycles among transactions
(`information-cycle`, `write-cycle`) have no text, because SQL would need recursion. Unit tests compare them with brute force
on small cells instead.
"""

from prozess.harness.interfaces.witnesses import CopyCase, EarlyCase, SequenceCase, SnapshotCase
from prozess.harness.schema import ObservationKind
from prozess.spark_checkers.oracle.views import cleaned, cleaning, identity

LOG_VIEWS = {
    "unreadable_log": "select distinct partition from log where level = {UNCOMMITTED} and unreadable",
    # A commit in doubt is proven by any record of it that somebody at read_committed received.
    "proven_transaction": """
        select distinct s.partition, s.client, s.transaction
        from sent s
        join given g on g.partition = s.partition and g.sender = s.client and g.sequence = s.sequence
        where s.transaction != {NONE} and g.isolation = {COMMITTED} and not g.unreadable
    """,
    # Sends that may have been acknowledged, and are not in L. Nearly all are: what follows looks at the few others.
    "absent_send": """
        select s.* from sent s
        left anti join first_copy f
            on f.partition = s.partition and f.level = {UNCOMMITTED} and f.sender = s.client and f.sequence = s.sequence
        where s.outcome = {OK} or (s.outcome = {INFO} and s.transaction != {NONE})
    """,
    # Acknowledged (or proven by their transaction) and not in L.
    "missing_send": f"""
        select s.*,
               {cleaned("s", tombstone="s.size = {NONE}")}
               or (c.partition is not null and (s.log_offset = {{NONE}} or coalesce(l.unreadable, false))) as maybe
        from absent_send s
        join fact_partitions p on p.partition = s.partition and p.end_uncommitted is not null
        left anti join passed_over o on o.partition = s.partition
        left join sentinel e on e.partition = s.partition
        left join proven_transaction proven
            on proven.partition = s.partition and proven.client = s.client and proven.transaction = s.transaction
        left join unreadable_log c on c.partition = s.partition
        left join log l on l.partition = s.partition and l.level = {{UNCOMMITTED}} and l.log_offset = s.log_offset
        {cleaning("s")}
        left anti join unconfirmed u
            on u.partition = s.partition and u.sender = s.client and u.sequence = s.sequence and s.outcome = {{INFO}}
        left anti join straggler b on b.partition = s.partition and b.sender = s.client and b.sequence = s.sequence
        where (s.outcome = {{OK}}
               or (s.outcome = {{INFO}} and s.transaction != {{NONE}} and proven.client is not null))
          and not (e.sentinel_ns is not null and s.completed_ns >= e.sentinel_ns
                   and (s.log_offset = {{NONE}} or s.log_offset > p.end_uncommitted))
    """,
    # Received by somebody, and not in L, although L reaches so far.
    "missing_read": f"""
        select distinct u.partition, u.sender as client, u.sequence
        from unconfirmed u
        join fact_partitions p on p.partition = u.partition and p.end_uncommitted is not null
        left anti join passed_over o on o.partition = u.partition
        left join sentinel e on e.partition = u.partition
        left join sent s on s.partition = u.partition and s.client = u.sender and s.sequence = u.sequence
        left join missing_send d on d.partition = u.partition and d.client = u.sender and d.sequence = u.sequence
        {cleaning("u")}
        left anti join first_copy f
            on f.partition = u.partition and f.level = {{UNCOMMITTED}} and f.sender = u.sender and f.sequence = u.sequence
        left anti join straggler b on b.partition = u.partition and b.sender = u.sender and b.sequence = u.sequence
        left anti join never_issued n on n.partition = u.partition and n.sender = u.sender and n.sequence = u.sequence
        where (u.log_offset <= p.end_uncommitted or coalesce(u.read_ns < e.sentinel_ns, false))
          and (u.sent_partition = u.partition or u.sent_partition = {{NONE}})
          and (s.client is null or s.outcome = {{INFO}} or coalesce(d.maybe and d.log_offset = {{NONE}}, false))
          and (coalesce(s.transaction, {{NONE}}) = {{NONE}} or u.isolation = {{COMMITTED}})
          and not u.unreadable_there
          and not {cleaned("u", tombstone="coalesce(s.size = {NONE}, false)")}
    """,
}


def _time_travel(*, there: str, reader: str) -> str:
    """Returns the text of `time-travel`. `there`: a record of `s` is certainly in the log that consumers read; `reader`: a
    read of `g` is somebody's own."""
    return f"""
        with standing as (
            select s.*, f.log_offset as stands_at, f.position, p.compacted or p.log_start > 0 as cleaning, {there} as there
            from sent s
            join first_copy f
                on f.partition = s.partition and f.level = {{UNCOMMITTED}} and f.sender = s.client
                and f.sequence = s.sequence
            join fact_partitions p on p.partition = s.partition
            where s.clock != {{NONE}}
        ),
        timed as (
            select g.partition, g.sender, g.sequence, g.log_offset, g.read_ns, c.clock
            from given g
            join fact_clients c on c.world = g.world and c.client = g.client
            where c.clock != {{NONE}} and not g.unreadable and {reader}
        ),
        in_order as (
            select t.*, max(invoked_ns) over (
                       partition by partition, clock order by position range between unbounded preceding and current row
                   ) as newest
            from (
                select partition, clock, position, null as sender, null as sequence, null as log_offset, null as read_ns,
                       case when there then invoked_ns end as invoked_ns
                from standing
                union all
                select r.partition, r.clock, l.position, r.sender, r.sequence, r.log_offset, r.read_ns, null
                from timed r
                join log l on l.partition = r.partition and l.level = {{UNCOMMITTED}} and l.log_offset = r.log_offset
                    and l.sender = r.sender and l.sequence = r.sequence and not l.unreadable
            ) t
        )
        select partition, client, sequence, stands_at as log_offset from (
            select s.*, max(s.invoked_ns) over (
                       partition by s.partition, s.clock order by s.position
                       rows between unbounded preceding and 1 preceding
                   ) as newest_before
            from standing s
        )
        where outcome = {{OK}} and acks != 0 and completed_ns != {{MISSING}} and completed_ns < newest_before
          and (not cleaning or log_offset = stands_at)
        union
        select partition, sender, sequence, log_offset from in_order where read_ns < newest
        union
        select r.partition, r.sender, r.sequence, r.log_offset
        from timed r
        join sent s on s.partition = r.partition and s.client = r.sender and s.sequence = r.sequence and s.clock = r.clock
        where r.read_ns < s.invoked_ns
    """


LOG_QUERIES = {
    "lost": """
        select partition, client, sequence from missing_send where not maybe
        union
        select partition, client, sequence from missing_read
    """,
    "duplicate": """
        with repeated as (
            select * from first_copy where level = {UNCOMMITTED} and copies > 1
        ),
        copies as (
            select l.*, coalesce(s.transaction, {NONE}) != {NONE} as transactional
            from log l
            left semi join repeated r
                on r.partition = l.partition and r.sender = l.sender and r.sequence = l.sequence
            left join sent s on s.partition = l.partition and s.client = l.sender and s.sequence = l.sequence
            where l.level = {UNCOMMITTED} and not l.unreadable
        ),
        standing as (
            select c.* from copies c where not c.transactional
            union all
            select c.* from copies c
            join log v on v.partition = c.partition and v.level = {COMMITTED} and v.log_offset = c.log_offset
                and v.sender = c.sender and v.sequence = c.sequence and not v.unreadable
            where c.transactional
        )
        select partition, sender as client, sequence, log_offset
        from (
            select *, row_number() over (partition by partition, sender, sequence order by log_offset) as copy
            from standing
        )
        where copy > 1
    """,
    "reordered": """
        select partition, client, sequence, log_offset from (
            select l.partition, l.sender as client, l.sequence, l.log_offset,
                   lag(l.sequence) over (partition by l.partition, l.sender order by l.position) as before
            from first_copy l
            left anti join never_issued n
                on n.partition = l.partition and n.sender = l.sender and n.sequence = l.sequence
            where l.level = {UNCOMMITTED}
              and (l.sent_partition = l.partition or l.sent_partition = {NONE})
        )
        where sequence < before
    """,
    "offset-conflict": """
        with seen as (
            select partition, log_offset, sender, sequence from given where not unreadable
            union all
            select partition, log_offset, client, sequence
            from sent where outcome = {OK} and acks = -1 and log_offset != {NONE}
        ),
        several as (
            select partition, log_offset from seen group by partition, log_offset
            having min(sender) != max(sender) or min(sequence) != max(sequence)
        )
        select partition, log_offset, explode(sequence(1, cast(records - 1 as int))) as conflict
        from (
            select n.partition, n.log_offset, count(distinct n.sender, n.sequence) as records
            from seen n join several v on v.partition = n.partition and v.log_offset = n.log_offset
            group by n.partition, n.log_offset
        )
    """,
    "phantom": """
        select distinct g.partition, g.log_offset, g.sender as client, g.sequence
        from given g
        join never_issued n on n.partition = g.partition and n.sender = g.sender and n.sequence = g.sequence
        where not g.unreadable
    """,
    "corrupt": """
        select distinct partition, log_offset, 0 as case from given where corrupt
        union all
        select partition, log_offset, 1 from (
            select distinct g.partition, g.log_offset, g.sender, g.sequence
            from given g
            join sent s on s.partition = g.partition and s.client = g.sender and s.sequence = g.sequence and s.key != g.key
            join fact_clients c on c.world = s.world and c.client = s.client
            where not g.unreadable and (g.key != {NONE} or g.by_audit) and (s.key != {NONE} or c.told_ns is not null)
        )
    """,
    "misplaced": """
        select distinct partition, log_offset, sender as client, sequence
        from given where not unreadable and sent_partition != partition and sent_partition != {NONE}
    """,
    "invisible": f"""
        with unshown as (
            select l.* from log l
            join fact_partitions p on p.partition = l.partition
            left anti join log v
                on v.partition = l.partition and v.level = {{COMMITTED}} and v.log_offset = l.log_offset
            where l.level = {{UNCOMMITTED}} and l.log_offset < p.end_committed
        ),
        stored as (
            select u.partition, u.log_offset,
                   bool_or((r.attributes & 16) != 0) as in_transaction, bool_or((r.attributes & 16) = 0) as outside
            from unshown u
            join fact_copies c on c.partition = u.partition
            join replicas r
                on r.partition = u.partition and r.node = c.node and r.step = {{NONE}} and r.base_offset <= u.log_offset
                and r.last_offset >= u.log_offset
            group by u.partition, u.log_offset
        )
        select u.partition, u.sender as client, u.sequence, u.log_offset
        from unshown u
        join fact_partitions p on p.partition = u.partition
        left join sent s
            on s.partition = u.partition and s.client = u.sender and s.sequence = u.sequence and not u.unreadable
        left join stored b on b.partition = u.partition and b.log_offset = u.log_offset
        {cleaning("u")}
        where not coalesce(b.in_transaction, false)
          and case when s.client is null then coalesce(b.outside, false) else s.transaction = {{NONE}} end
          and not (p.compacted and u.unreadable)
          and not {cleaned("u", tombstone="coalesce(s.size = {NONE}, true)")}
    """,
    "resurrected": """
        select s.partition, s.client, s.sequence
        from sent s
        join first_copy f
            on f.partition = s.partition and f.level = {UNCOMMITTED} and f.sender = s.client and f.sequence = s.sequence
        where s.outcome = {FAIL} and s.transaction = {NONE}
    """,
    "time-travel": _time_travel(there="true", reader="true"),
}
"""The SQL text of each anomaly of the log."""
UNAUDITED_LOG_VIEWS = {
    # What consumers received, and how far they read.
    "consumed": "select distinct partition, sender, sequence from given where not by_audit and not unreadable",
    "consumed_committed": """
        select distinct partition, sender, sequence
        from given where not by_audit and not unreadable and isolation = {COMMITTED}
    """,
    "reach": """
        select partition, max(log_offset) as furthest,
               max(case when isolation = {COMMITTED} then log_offset end) as furthest_committed
        from given where not by_audit group by partition
    """,
    # A reach: a span, and those in which its client went on.
    "reach_of_client": """
        with spans as (
            select partition, client, span, any_value(isolation) as isolation, max(log_offset) as furthest,
                   min(if((flags & {FROM_START}) != 0, {NONE}, log_offset)) as first,
                   1 - max(if((flags & {GOES_ON}) != 0, 1, 0)) as begins
            from given where not by_audit group by partition, client, span
        ),
        numbered as (
            select *, sum(begins) over (partition by partition, client order by span) as reach from spans
        )
        select partition, client, any_value(isolation) as isolation, min(first) as first, max(furthest) as furthest
        from numbered group by partition, client, reach
    """,
    # What stands between two records of one reach, where a consumer may have begun anywhere. `level`: of the consumer.
    "within_reach": """
        select distinct s.partition, s.client, s.sequence, r.isolation as level
        from sent s
        join fact_partitions p on p.partition = s.partition and p.readers_begin != 'start'
        join reach_of_client r on r.partition = s.partition and r.first < s.log_offset and r.furthest > s.log_offset
        where s.log_offset != {NONE}
    """,
    "within_span": "select distinct partition, client, sequence from within_reach",
    # Acknowledged (or proven by their transaction), and received by no consumer. `passed`: one read beyond.
    "ungiven": f"""
        select s.partition, s.client, s.sequence,
               s.log_offset != {{NONE}}
               and case when p.readers_begin = 'anywhere' then b.client is not null
                        else coalesce(s.log_offset <= r.furthest, false) end as passed
        from sent s
        join fact_partitions p on p.partition = s.partition
        left join reach r on r.partition = s.partition
        left join within_span b on b.partition = s.partition and b.client = s.client and b.sequence = s.sequence
        left join proven_transaction proven
            on proven.partition = s.partition and proven.client = s.client and proven.transaction = s.transaction
        {cleaning("s")}
        left anti join consumed c
            on c.partition = s.partition and c.sender = s.client and c.sequence = s.sequence
        left anti join unconfirmed u
            on u.partition = s.partition and u.sender = s.client and u.sequence = s.sequence and s.outcome = {{INFO}}
        where (s.outcome = {{OK}}
               or (s.outcome = {{INFO}} and s.transaction != {{NONE}} and proven.client is not null))
          and not {cleaned("s", tombstone="s.size = {NONE}")}
    """,
}
"""Further views of what consumers received."""
UNAUDITED_LOG_QUERIES = {
    # What acks=1 acknowledged may stand in the log of a deposed leader alone.
    "time-travel": _time_travel(
        there="""(
            s.acks = -1 or exists (
                select 1 from consumed c
                where c.partition = s.partition and c.sender = s.client and c.sequence = s.sequence
            )
        )""",
        reader="not g.by_audit",
    ),
    "corrupt": "select distinct partition, log_offset, 0 as case from given where corrupt",
    "lost": "select partition, client, sequence from ungiven where passed",
    "unseen": "select partition, client, sequence from ungiven where not passed",
    "resurrected": """
        select s.partition, s.client, s.sequence
        from sent s
        join consumed c on c.partition = s.partition and c.sender = s.client and c.sequence = s.sequence
        where s.outcome = {FAIL} and s.transaction = {NONE}
    """,
}
"""The texts of the log that are other ones where nobody audited. `unseen` is a fact: what nobody can be said to have
missed."""


# What producers are told.


_OF_PROVOCATION = """
    sent s
    join fact_partitions f on f.partition = s.partition
    join fact_cells c on c.world = f.world and c.cell = f.cell and c.workload = 'errors'
"""
_BAD = "(c.bad_every > 0 and s.sequence % c.bad_every = c.bad_every - 1)"
ERROR_QUERIES = {
    # Nobody was told, or (acks=0) told of a success; cleaning may have taken it wherever it stood.
    "unreported": f"""
        with unheard as (
            select s.partition, s.client, s.sequence, s.key, s.size, s.completed_ns, {{NONE}} as log_offset
            from sent s
            left anti join first_copy f
                on f.partition = s.partition and f.level = {{UNCOMMITTED}} and f.sender = s.client
                and f.sequence = s.sequence
            join fact_clients c on c.world = s.world and c.client = s.client
            where s.transaction = {{NONE}}
              and ((s.completed_ns = {{MISSING}} and s.invoked_ns < c.told_ns)
                   or (c.role = {{PRODUCER}} and s.acks = 0 and s.outcome = {{OK}}))
        )
        select s.partition, s.client, s.sequence
        from unheard s
        join fact_partitions p on p.partition = s.partition and p.end_uncommitted is not null
        left anti join passed_over o on o.partition = s.partition
        left join sentinel e on e.partition = s.partition
        {cleaning("s")}
        left anti join unreadable_log u on u.partition = s.partition
        where (e.sentinel_ns is null or s.completed_ns < e.sentinel_ns)
          and not {cleaned("s", tombstone="s.size = {NONE}")}
    """,
    "unenforced": f"""
        select s.partition, s.client, s.sequence
        from {_OF_PROVOCATION}
        join first_copy l
            on l.partition = s.partition and l.level = {{UNCOMMITTED}} and l.sender = s.client and l.sequence = s.sequence
        where {_BAD}
    """,
    "collateral": f"""
        select s.partition, s.client, s.sequence
        from {_OF_PROVOCATION}
        join fact_codes d on d.world = c.world and d.cell = c.cell and d.code = s.code
        where c.bad_every > 0 and not {_BAD}
    """,
}
"""The SQL text of each anomaly of errors that producers get."""


# What replicas remember of producers: snapshots against the batches below them.


_TRANSACTIONAL, _CONTROL = 0x10, 0x20
"""Bits of a batch's attributes."""
_OF_SNAPSHOTS = f"""
    with noted as (
        select distinct o.partition, o.node, o.value as snapshot_offset, c.log_start
        from observations o
        join fact_partitions f on f.partition = o.partition and not f.compacted
        join fact_copies c on c.partition = o.partition and c.node = o.node and o.value <= c.log_end
        where o.kind = {int(ObservationKind.REPLICA_SNAPSHOT)} and o.step = {{NONE}}
    ),
    below as (
        select n.*, b.producer_id, b.base_offset, b.last_offset, b.producer_epoch, b.base_sequence, b.max_timestamp_ms,
               (b.attributes & {_CONTROL}) != 0 as marker,
               (b.attributes & ({_CONTROL} | {_TRANSACTIONAL})) = {_TRANSACTIONAL} as in_transaction,
               last_value(b.producer_epoch) over whole_of as epoch,
               max(case when (b.attributes & {_CONTROL}) != 0 then b.base_offset end) over whole_of as marker_at
        from noted n
        join replicas b on b.partition = n.partition and b.node = n.node and b.step = {{NONE}}
            and b.base_offset < n.snapshot_offset and b.producer_id >= 0 and b.last_offset >= n.log_start
        window whole_of as (
            partition by n.partition, n.node, n.snapshot_offset, b.producer_id order by b.base_offset
            rows between unbounded preceding and unbounded following
        )
    ),
    aged as (
        select *, coalesce(max(case when producer_epoch != epoch then base_offset end) over (
                   partition by partition, node, snapshot_offset, producer_id
               ), {{NONE}}) as epoch_before_at
        from below
    ),
    kept as (
        select partition, node, snapshot_offset, log_start, producer_id, max(epoch) as epoch,
               max_by(max_timestamp_ms, base_offset) as timestamp_ms, max(last_offset) as reached,
               max_by(struct(base_sequence, base_offset, last_offset), base_offset)
                   filter (where not marker and base_offset > epoch_before_at) as newest,
               coalesce(min(base_offset) filter (where in_transaction and base_offset > coalesce(marker_at, -1)), {{NONE}})
                   as transaction_offset,
               max(epoch_before_at) != {{NONE}} as epoch_changed, max(marker_at) is not null as marked
        from aged
        group by partition, node, snapshot_offset, log_start, producer_id
    ),
    remembered as (
        select s.*, n.log_start
        from snapshots s
        join noted n on n.partition = s.partition and n.node = s.node and n.snapshot_offset = s.snapshot_offset
        where s.step = {{NONE}}
    )
"""
SNAPSHOT_QUERIES = {
    "out-of-sequence": f"""
        with batch as (
            select r.*, (r.attributes & {_CONTROL}) != 0 as marker,
                   max(r.producer_epoch) over (
                       partition by r.partition, r.node, r.producer_id order by r.base_offset
                       rows between unbounded preceding and 1 preceding
                   ) as newest_epoch
            from replicas r
            join fact_partitions f on f.partition = r.partition and not f.compacted
            join fact_copies c on c.partition = r.partition and c.node = r.node
            where r.step = {{NONE}} and r.producer_id >= 0 and r.last_offset >= c.log_start
        ),
        following as (
            select *, lag(producer_epoch) over one as epoch_before,
                   base_sequence - lag(base_sequence + last_offset - base_offset + 1) over one as ahead
            from batch where not marker
            window one as (partition by partition, node, producer_id order by base_offset)
        ),
        found as (
            select *, case
                when producer_epoch < newest_epoch then {int(SequenceCase.OLD_EPOCH)}
                when producer_epoch != epoch_before
                    then case when base_sequence != 0 then {int(SequenceCase.NOT_FROM_ZERO)} end
                when pmod(ahead, 1L << 31) = 0 then null
                when pmod(ahead, 1L << 31) < 1L << 30 then {int(SequenceCase.GAP)}
                when ahead is not null then {int(SequenceCase.REPEATED)} end as case
            from following
        )
        select partition, log_offset, sequence, reader, case from (
            select partition, base_offset as log_offset, cast(base_sequence as bigint) as sequence, node as reader, case,
                   row_number() over (partition by partition, producer_id, base_offset order by node) as number
            from found where case is not null
        )
        where number = 1
    """,
    "snapshot-conflict": f"""
        {_OF_SNAPSHOTS},
        compared as (
            select coalesce(k.partition, r.partition) as partition, coalesce(k.node, r.node) as node,
                   coalesce(k.snapshot_offset, r.snapshot_offset) as snapshot_offset, k.reached, r.last_sequence,
                   cast((k.newest.base_sequence + k.newest.last_offset - k.newest.base_offset) % (1L << 31) as int)
                       as own_sequence,
                   case
                       when r.partition is null then {int(SnapshotCase.UNKNOWN_THERE)}
                       when k.partition is null then
                           case when r.last_offset >= r.log_start or r.log_start = 0
                                then {int(SnapshotCase.UNKNOWN_HERE)} else 0 end
                       when k.epoch != r.producer_epoch then {int(SnapshotCase.EPOCH)}
                       when (k.log_start = 0 or k.newest is not null or k.epoch_changed)
                            and (coalesce(k.newest.last_offset, {{NONE}}) != r.last_offset
                                 or coalesce(k.newest.last_offset - k.newest.base_offset, 0) != r.offset_delta
                                 or coalesce((k.newest.base_sequence + k.newest.last_offset - k.newest.base_offset)
                                             % (1L << 31), {{NONE}}) != r.last_sequence)
                           then {int(SnapshotCase.LAST_BATCH)}
                       when (k.log_start = 0 or k.marked) and k.transaction_offset != r.transaction_offset
                           then {int(SnapshotCase.TRANSACTION)}
                       when k.timestamp_ms != r.timestamp_ms then {int(SnapshotCase.TIMESTAMP)}
                       else 0
                   end as case
            from kept k
            full join remembered r
                on r.partition = k.partition and r.node = k.node and r.snapshot_offset = k.snapshot_offset
                and r.producer_id = k.producer_id
        )
        select partition, node as reader, snapshot_offset as log_offset, coalesce(reached, {{NONE}}) as other_offset,
               cast(coalesce(last_sequence, {{NONE}}) as bigint) as sequence,
               cast(coalesce(own_sequence, {{NONE}}) as bigint) as other_sequence, case
        from compared where case > 0
    """,
}
"""The SQL text of the anomaly of producer snapshots, which compares each with the batches below it."""


TRANSACTION_VIEWS = {
    "unreadable_shown": "select distinct partition from log where level = {COMMITTED} and unreadable",
    # Sends of recorded transactions, and what became of these.
    "transacted": """
        select s.*, x.outcome as became
        from sent s
        join transactions x on x.world = s.world and x.client = s.client and x.transaction = s.transaction
        where s.transaction != {NONE}
    """,
    "transactional": "select distinct partition from transacted",
    # Those of them that entered the client's queue, and whether V shows them.
    "queued": """
        select s.*, v.sender is not null as shown
        from transacted s
        left join first_copy v
            on v.partition = s.partition and v.level = {COMMITTED} and v.sender = s.client and v.sequence = s.sequence
        where s.outcome != {FAIL} or s.became = {FAIL}
    """,
    "hidden": "select * from queued where not shown",
    # The same; `missing`: V ought to show it, and does not.
    "record": f"""
        select partition, world, client, sequence, transaction, shown, false as missing from queued where shown
        union all
        select s.partition, s.world, s.client, s.sequence, s.transaction, false,
               p.end_committed is not null
               and not (
                   {cleaned("s", tombstone="s.size = {NONE}")}
                   or (e.sentinel_ns is not null and s.completed_ns >= e.sentinel_ns
                       and (s.log_offset = {{NONE}} or s.log_offset > p.end_committed))
                   or (c.partition is not null and (s.log_offset = {{NONE}} or coalesce(l.unreadable, false)))
               ) as missing
        from hidden s
        join fact_partitions p on p.partition = s.partition
        left join sentinel e on e.partition = s.partition
        left join unreadable_shown c on c.partition = s.partition
        left join log l on l.partition = s.partition and l.level = {{COMMITTED}} and l.log_offset = s.log_offset
        {cleaning("s")}
    """,
    # By whom a record of a recorded transaction was given: consumers, and V.
    "showing": """
        select g.partition, g.world, g.sender as client, g.sequence, s.transaction, g.read_ns, g.by_audit, g.client as reader,
               g.isolation = {COMMITTED} as committed
        from given g
        left semi join transactional t on t.partition = g.partition
        join transacted s on s.partition = g.partition and s.client = g.sender and s.sequence = g.sequence
        where not g.unreadable and not g.by_audit
        union all
        select l.partition, l.world, l.sender, l.sequence, s.transaction, l.read_ns, true, {NONE}, true
        from log l
        left semi join transactional t on t.partition = l.partition
        join transacted s on s.partition = l.partition and s.client = l.sender and s.sequence = l.sequence
        where l.level = {COMMITTED} and not l.unreadable
    """,
    # For how long the coordinators of a cell leave a transaction open.
    "left_open": "select world, cell, open_ns from fact_cells",
    # Until when each transaction of a cell was certainly open: before a commit (2), or before an abort (3).
    "open_until": f"""
        select t.world, l.cell, t.client, t.transaction, {int(EarlyCase.BEHIND_OPEN)} as kind, t.end_invoked_ns as until_ns
        from transactions t join left_open l on l.world = t.world
        where t.transaction != {{NONE}} and t.ended_by = 1 and t.outcome = {{OK}} and t.end_invoked_ns != {{MISSING}}
        union all
        select t.world, l.cell, t.client, t.transaction, {int(EarlyCase.BEHIND_ABORTED)},
               least(t.end_invoked_ns, t.begun_ns + l.open_ns, min(i.begun_ns))
        from transactions t
        join left_open l on l.world = t.world and l.open_ns is not null
        left join transactions i
            on i.world = t.world and i.transactional_id = t.transactional_id and i.transaction = {{NONE}}
            and (i.initialised_ns = {{MISSING}} or i.initialised_ns > t.initialised_ns)
        where t.transaction != {{NONE}} and t.ended_by = 2 and t.outcome = {{FAIL}} and t.code = 0
          and {{MISSING}} not in (t.begun_ns, t.end_invoked_ns, t.completed_ns, t.initialised_ns)
        group by t.world, l.cell, t.client, t.transaction, t.end_invoked_ns, t.begun_ns, l.open_ns
    """,
    "settled": """
        select x.world, x.client, x.transaction, x.initialised_ns, x.transactional_id, x.cell,
               x.ended_by = 2 as aborted,
               case when x.ended_by = 1 and x.end_invoked_ns != {MISSING} then x.end_invoked_ns end as commit_ns,
               x.shown,
               x.ended_by != 2 and (x.outcome = {OK} or (x.outcome = {INFO} and (x.shown or coalesce(g.seen, false))))
                   as committed
        from (
            select t.*, r.cell, coalesce(r.shown, false) as shown
            from transactions t
            join (
                select r.world, p.cell, r.client, r.transaction, bool_or(r.shown) as shown
                from record r join fact_partitions p on p.partition = r.partition
                group by r.world, p.cell, r.client, r.transaction
            ) r on r.world = t.world and r.client = t.client and r.transaction = t.transaction
            where t.transaction != {NONE}
        ) x
        left join (
            select h.world, p.cell, h.client, h.transaction, true as seen
            from showing h join fact_partitions p on p.partition = h.partition
            where h.committed and not h.by_audit group by h.world, p.cell, h.client, h.transaction
        ) g on g.world = x.world and g.cell = x.cell and g.client = x.client and g.transaction = x.transaction
    """,
}
_RECORDS = """
    select r.partition, r.client, r.sequence
    from record r
    join fact_partitions q on q.partition = r.partition
    join settled t
        on t.world = r.world and t.cell = q.cell and t.client = r.client and t.transaction = r.transaction
"""
_SHOWINGS = """
    select distinct h.partition, h.client, h.sequence, case when h.committed then 0 else 1 end as case
    from showing h
    join transactions x on x.world = h.world and x.client = h.client and x.transaction = h.transaction
"""
TRANSACTION_QUERIES = {
    "torn": f"{_RECORDS} where r.missing and t.shown and not t.aborted",
    "lost-transaction": f"{_RECORDS} where r.missing and t.committed and not t.shown",
    "zombie-write": f"""
        {_RECORDS}
        where r.shown and t.initialised_ns != {{MISSING}} and t.commit_ns is not null
          and exists (
              select 1 from transactions i
              where i.transaction = {{NONE}} and i.world = t.world and i.transactional_id = t.transactional_id
                and i.begun_ns > t.initialised_ns and i.initialised_ns != {{MISSING}}
                and i.initialised_ns < t.commit_ns
          )
    """,
    "aborted-read": f"{_SHOWINGS} where x.ended_by = 2",
    # It reads within a transaction from its begin until its end is invoked, or another one begins.
    "own-read": f"""
        {_SHOWINGS}
        left anti join transactions n
            on n.world = h.world and n.client = h.client and n.transaction > h.transaction and n.begun_ns <= h.read_ns
        where h.reader = h.client and x.begun_ns <= h.read_ns
          and (x.end_invoked_ns = {{MISSING}} or h.read_ns <= x.end_invoked_ns)
    """,
    # A record given before its own commit; and, by the same clock, one behind a record of an open transaction.
    "early-read": f"""
        with left_behind as (
            select partition, sender, sequence, read_ns, log_offset,
                   max(case when kind = {int(EarlyCase.BEHIND_OPEN)} then until_ns end) over so_far as committed_ns,
                   max(case when kind = {int(EarlyCase.BEHIND_ABORTED)} then until_ns end) over so_far as aborted_ns
            from (
                select s.partition, s.clock, l.log_offset, u.kind, u.until_ns, null as sender, null as sequence,
                       null as read_ns
                from transacted s
                join log l
                    on l.partition = s.partition and l.level = {{UNCOMMITTED}} and l.sender = s.client
                    and l.sequence = s.sequence and not l.unreadable
                join open_until u
                    on u.world = s.world and u.cell = s.cell and u.client = s.client and u.transaction = s.transaction
                where s.clock != {{NONE}}
                union all
                select g.partition, c.clock, g.log_offset, null, null, g.sender, g.sequence, g.read_ns
                from given g
                join fact_clients c on c.world = g.world and c.client = g.client and c.clock != {{NONE}}
                join log l
                    on l.partition = g.partition and l.level = {{UNCOMMITTED}} and l.log_offset = g.log_offset
                    and l.sender = g.sender and l.sequence = g.sequence and not l.unreadable
                left join transacted s
                    on s.partition = g.partition and s.client = g.sender and s.sequence = g.sequence
                left join transactions x
                    on x.world = s.world and x.client = s.client and x.transaction = s.transaction
                where g.isolation = {{COMMITTED}} and not g.by_audit and not g.unreadable
                  and (s.client is null or (x.ended_by = 1 and x.end_invoked_ns != {{MISSING}}
                                            and g.read_ns >= x.end_invoked_ns))
            )
            window so_far as (partition by partition, clock order by log_offset)
        )
        {_SHOWINGS}
        join fact_clients c on c.world = h.world and c.client = h.reader
        join fact_clients d on d.world = h.world and d.client = h.client and d.clock = c.clock
        where x.ended_by != 2 and not h.by_audit and c.clock != {{NONE}}
          and (x.ended_by != 1 or x.end_invoked_ns = {{MISSING}} or h.read_ns < x.end_invoked_ns)
        union all
        select distinct partition, sender, sequence,
               case when coalesce(committed_ns > read_ns, false) then {int(EarlyCase.BEHIND_OPEN)}
                    else {int(EarlyCase.BEHIND_ABORTED)} end
        from left_behind where committed_ns > read_ns or aborted_ns > read_ns
    """,
}
"""The SQL text of each anomaly of transactions. What a record should be follows from its transaction, wherever it
stands."""
UNAUDITED_TRANSACTION_VIEWS = {
    # What a client was not told of an abort, it is not told here either.
    "left_open": "select world, cell, cast(null as bigint) as open_ns from fact_cells",
    # An acknowledgement says where a record of a transaction ought to stand. Whether it is shown, a consumer must say.
    "queued": """
        select s.*, v.sender is not null and c.sender is not null as shown
        from transacted s
        left join first_copy v
            on v.partition = s.partition and v.level = {COMMITTED} and v.sender = s.client and v.sequence = s.sequence
        left join consumed_committed c
            on c.partition = s.partition and c.sender = s.client and c.sequence = s.sequence
        where s.outcome != {FAIL} or s.became = {FAIL}
    """,
    "record": """
        select s.partition, s.world, s.client, s.sequence, s.transaction, s.shown,
               not s.shown and s.log_offset != {NONE}
               and case when p.readers_begin = 'start' then coalesce(s.log_offset <= r.furthest_committed, false)
                        else b.client is not null end as missing
        from queued s
        join fact_partitions p on p.partition = s.partition
        left join reach r on r.partition = s.partition
        left join within_reach b
            on b.partition = s.partition and b.client = s.client and b.sequence = s.sequence and b.level = {COMMITTED}
    """,
}
"""The views that are made in another way without an audit."""
UNAUDITED_TRANSACTION_QUERIES = {
    # A client does one thing at a time, and it is not told when it asked for the end of its transaction.
    "own-read": """
        select distinct h.partition, h.client, h.sequence, case when h.committed then 0 else 1 end as case
        from showing h
        join transactions x on x.world = h.world and x.client = h.client and x.transaction = h.transaction
        left anti join transactions n
            on n.world = h.world and n.client = h.client and n.transaction > h.transaction and n.begun_ns <= h.read_ns
        where h.reader = h.client and x.begun_ns <= h.read_ns
          and (x.completed_ns = {MISSING} or h.read_ns <= x.completed_ns)
    """,
}
"""The texts of transactions that are other ones where nobody audited."""


# Copiers.


COPY_VIEWS = {
    # Cells with copiers, and whether the audit showed all of both topics.
    "copying": """
        select c.world, c.cell, c.by_content,
               bool_and(
                   case when f.derived then f.end_committed when o.partition is null then f.end_uncommitted end is not null
               ) as whole
        from fact_cells c join fact_partitions f on f.world = c.world and f.cell = c.cell
        left join passed_over o on o.partition = f.partition
        where c.workload in ('exactly-once', 'application')
        group by c.world, c.cell, c.by_content
    """,
    # What the group had committed in the end, as the observer was told last.
    "final": f"""
        select partition, value as committed from (
            select o.partition, o.value,
                   row_number() over (partition by o.partition order by o.time_ns desc, o.row desc) as newest
            from observations o
            join fact_partitions f on f.partition = o.partition
            join fact_clients k on k.world = f.world and k.client = o.client and k.role = {{OBSERVER}}
            where o.kind = {int(ObservationKind.COMMITTED)}
        )
        where newest = 1
    """,
    # Source records by what their copies carry; null: nothing is known of it.
    "original": f"""
        select c.world, c.cell, c.whole, l.partition, l.log_offset, l.sender, l.sequence,
               coalesce(l.log_offset < d.committed, false) as below,
               case when c.by_content then nullif(l.origin, {{NONE}})
                    when not l.unreadable then {identity("l.sender", "l.sequence")} end as content
        from copying c
        join fact_partitions f on f.world = c.world and f.cell = c.cell and not f.derived
        join log l on l.partition = f.partition and l.level = {{UNCOMMITTED}}
        left join final d on d.partition = f.partition
    """,
    "copied": """
        select c.world, c.cell, c.whole, l.partition, l.log_offset, l.sender, l.sequence,
               nullif(l.origin, {NONE}) as content,
               row_number() over (
                   partition by c.world, c.cell, l.origin order by l.partition, l.log_offset
               ) as number
        from copying c
        join fact_partitions f on f.world = c.world and f.cell = c.cell and f.derived
        join log l on l.partition = f.partition and l.level = {COMMITTED}
    """,
}
COPY_QUERIES = {
    "not-exactly-once": f"""
        with missing as (
            select partition, sender, sequence, log_offset, {int(CopyCase.MISSING)} as case from (
                select o.*, coalesce(n.copies, 0) as copies,
                       row_number() over (
                           partition by o.world, o.cell, o.content order by o.partition, o.log_offset
                       ) as number
                from original o
                left join (select world, cell, content, count(*) as copies from copied group by world, cell, content) n
                    on n.world = o.world and n.cell = o.cell and n.content = o.content
                where o.whole and o.below and o.content >= 0
            )
            where number > copies
        ),
        counted as (
            select c.*, coalesce(n.originals, 0) as originals
            from copied c
            left join (select world, cell, content, count(*) as originals from original group by world, cell, content) n
                on n.world = c.world and n.cell = c.cell and n.content = c.content
        )
        select partition, sender as client, sequence, log_offset, case from missing
        union all
        select partition, sender, sequence, log_offset, {int(CopyCase.REPEATED)} from counted
        where content >= 0 and number > greatest(1, originals) and (originals > 0 or not whole)
        union all
        select partition, sender, sequence, log_offset, {int(CopyCase.STRANGE)} from counted
        where whole and originals = 0
    """,
}
"""The SQL text of the anomaly of copiers."""
