"""The second opinion on readers, compacted logs, copies, and what brokers and controllers reported: one SQL text for
each anomaly."""

from prozess.harness.interfaces.witnesses import STALLED_NS, LateCase, StallCase
from prozess.harness.recording.metrics import MICRO, code_of
from prozess.harness.schema import ObservationKind
from prozess.spark_checkers.oracle.progress import longest_awake
from prozess.spark_checkers.oracle.views import cleaned, cleaning

_ACKNOWLEDGED = """
    select s.* from sent s
    join fact_partitions p on p.partition = s.partition and p.compacted and p.end_uncommitted is not null
    left anti join passed_over o on o.partition = s.partition
    left join sentinel e on e.partition = s.partition
    where s.outcome = {OK} and s.key != {NONE} and s.log_offset != {NONE}
      and not (e.sentinel_ns is not null and s.log_offset > p.end_uncommitted and s.completed_ns >= e.sentinel_ns)
"""
READING_VIEWS = {
    # Each read that does not follow the one before it in the same assignment at the next offset, with that one.
    "step": """
        select * from (
            select g.partition, g.client as reader, g.by_audit, g.log_offset, g.row,
                   case when g.isolation = {COMMITTED} then {COMMITTED} else {UNCOMMITTED} end as level,
                   lag(g.log_offset) over (partition by g.partition, g.client order by g.row) as before,
                   lag(g.span) over (partition by g.partition, g.client order by g.row) as span_before, g.span
            from given g
        )
        where span = span_before and log_offset != before + 1
    """,
}
# Partitions that have several copies, and between which offsets those must be alike.
READING_VIEWS["alike"] = """
    select p.partition, p.compacted, max(c.log_start) as low,
           greatest(coalesce(max(p.end_uncommitted), -1) + 1, min(coalesce(c.high_watermark, 0))) as high
    from fact_partitions p
    join fact_copies c on c.partition = p.partition
    join (select partition, count(*) as nodes from fact_assignment group by partition) a
        on a.partition = p.partition and a.nodes >= 2
    group by p.partition, p.compacted
"""
# The batches of each copy there, and what of their headers must be alike.
READING_VIEWS["batch"] = """
    select r.partition, j.compacted, r.node, r.base_offset, r.last_offset,
           struct(
               r.last_offset, r.leader_epoch, r.producer_id, r.producer_epoch, r.base_sequence,
               if(j.compacted, r.attributes & 56, r.attributes) as attributes,
               if(j.compacted, null, struct(
                   r.checksum, r.records, r.base_timestamp_ms, r.max_timestamp_ms, r.size
               )) as content
           ) as header
    from replicas r
    join alike j on j.partition = r.partition and r.base_offset >= j.low and r.base_offset < j.high
    join fact_copies c on c.partition = r.partition and c.node = r.node
    where r.step = {NONE}
"""


def skipped(known: str) -> str:
    """Returns the text of `skipped`. `known` is a condition: of this step `s` in the partition `p` it is known what stands in
    the log between its two records."""
    return f"""
        with jump as (
            select s.* from step s join fact_partitions p on p.partition = s.partition
            where not s.by_audit and s.log_offset > s.before + 1
              and {known}
        ),
        mark as (
            select partition, level, log_offset, log_offset as place, 0 as kind, 0L as row from log
            union all
            select partition, level, cast(null as bigint), before, 1, row from jump
        ),
        following as (
            select partition, level, row, kind,
                   last_value(log_offset, true) over (
                       partition by partition, level order by place desc, kind desc
                       rows between unbounded preceding and 1 preceding
                   ) as next_record
            from mark
        )
        select j.partition, j.reader, f.next_record as log_offset, j.before + 1 as other_offset
        from jump j
        join following f on f.partition = j.partition and f.level = j.level and f.kind = 1 and f.row = j.row
        where f.next_record < j.log_offset
    """


READING_QUERIES = {
    "dirty-read": f"""
        select u.partition, u.client as reader, u.log_offset, u.sender as client, u.sequence, u.leader_epoch
        from unconfirmed u
        join fact_partitions p on p.partition = u.partition and p.end_uncommitted is not null
        left anti join passed_over o on o.partition = u.partition
        left join sentinel e on e.partition = u.partition
        left join sent s on s.partition = u.partition and s.client = u.sender and s.sequence = u.sequence
        left join first_copy f
            on f.partition = u.partition and f.level = {{UNCOMMITTED}} and f.sender = u.sender and f.sequence = u.sequence
        {cleaning("u")}
        where not u.by_audit and not u.unreadable_there
          and (u.log_offset <= p.end_uncommitted or coalesce(u.read_ns < e.sentinel_ns, false))
          and (u.replaced or (f.sender is null and not {cleaned("u", tombstone="coalesce(s.size = {NONE}, false)")}))
    """,
    "skipped": skipped("case s.level when {COMMITTED} then p.end_committed else p.end_uncommitted end is not null"),
    "rewound": """
        select partition, reader, log_offset, before as other_offset from step where log_offset <= before
    """,
    "compacted-away": f"""
        with acknowledged as ({_ACKNOWLEDGED}),
        newest as (
            select *, row_number() over (
                partition by partition, key order by log_offset desc, client desc, sequence desc
            ) as number
            from acknowledged
        )
        select n.partition, n.client, n.sequence
        from newest n
        left join last_of_key k on k.partition = n.partition and k.key = n.key
        left join tombstone t on t.partition = n.partition and t.key = n.key
        where n.number = 1 and n.size != {{NONE}} and coalesce(k.log_offset, {{NONE}}) < n.log_offset
          and not coalesce(t.log_offset > n.log_offset, false)
    """,
    "tombstone-lost": f"""
        with acknowledged as ({_ACKNOWLEDGED}),
        newest as (
            select *, row_number() over (
                partition by partition, key order by log_offset desc, client desc, sequence desc
            ) as number
            from acknowledged where size = {{NONE}}
        )
        select n.partition, n.client, n.sequence
        from newest n join last_of_key k on k.partition = n.partition and k.key = n.key
        where n.number = 1 and k.log_offset < n.log_offset
    """,
    "diverged": """
        with uneven as (
            select b.partition, b.base_offset
            from batch b
            join (select partition, count(*) as copies from fact_copies group by partition) c on c.partition = b.partition
            group by b.partition, b.base_offset
            having count(distinct b.header) > 1 or count(distinct b.node) != max(c.copies)
        ),
        place as (
            select distinct b.partition, b.compacted, b.base_offset, u.partition is not null as uneven
            from batch b
            left join uneven u on u.partition = b.partition and u.base_offset = b.base_offset
        ),
        within as (
            select distinct partition, node, base_offset from (
                select p.partition, c.node, p.base_offset,
                       max(b.last_offset) over (
                           partition by p.partition, c.node order by p.base_offset
                           rows between unbounded preceding and current row
                       ) as reached
                from place p
                join fact_copies c on c.partition = p.partition
                left join batch b
                    on b.partition = p.partition and b.node = c.node and b.base_offset = p.base_offset
                where p.compacted
            )
            where reached >= base_offset
        ),
        compared as (
            select p.partition, p.base_offset, one.node as one, other.node as other,
                   not p.compacted and b.header is null and p.base_offset >= other.log_end as behind
            from place p
            join fact_copies one on one.partition = p.partition
            join fact_copies other on other.partition = p.partition and other.node != one.node
            left join batch a on a.partition = p.partition and a.node = one.node and a.base_offset = p.base_offset
            left join batch b on b.partition = p.partition and b.node = other.node and b.base_offset = p.base_offset
            left join within x on x.partition = p.partition and x.node = one.node and x.base_offset = p.base_offset
            left join within y on y.partition = p.partition and y.node = other.node and y.base_offset = p.base_offset
            where p.uneven and not (a.header <=> b.header)
              and (not p.compacted or (x.node is not null and y.node is not null))
        ),
        trusted as (
            select partition, one from (
                select c.partition, c.node as one,
                       row_number() over (partition by c.partition order by count(d.other), c.node) as number
                from fact_copies c left join compared d on d.partition = c.partition and d.one = c.node
                group by c.partition, c.node
            )
            where number = 1
        )
        select partition, reader, log_offset from (
            select c.partition, c.other as reader, c.base_offset as log_offset, c.behind,
                   row_number() over (partition by c.partition, c.other, c.behind order by c.base_offset) as number
            from compared c join trusted t on t.partition = c.partition and t.one = c.one
        )
        where not behind or number = 1
    """,
    "watermark-regression": f"""
        with made as (select partition, since_ns, error_ns from truth where life != life_before),
        told as (
            select * from (
                select o.partition, o.time_ns, o.value, o.node, o.leader_epoch, o.row,
                       count_if(m.since_ns <= o.time_ns + m.error_ns) as life,
                       count_if(m.since_ns <= o.time_ns - m.error_ns - 1000000000L) as life_for_sure
                from observations o left join made m on m.partition = o.partition
                where o.kind = {int(ObservationKind.LEADER_HIGH_WATERMARK)} and o.node >= 0 and o.leader_epoch >= 0
                group by o.partition, o.time_ns, o.value, o.node, o.leader_epoch, o.row
            )
            where life = life_for_sure
        ),
        answer as (
            select partition, time_ns, value, node, leader_epoch, life, row,
                   lag(time_ns) over (partition by partition, node order by time_ns, row) as asked_after_ns
            from told
        )
        select distinct a.partition, a.node as reader, a.time_ns as end_ns, a.value as log_offset, a.row
        from answer a
        join answer b
            on b.partition = a.partition and b.life = a.life and b.leader_epoch <= a.leader_epoch and b.value > a.value
            and b.time_ns <= a.asked_after_ns
    """,
    "epoch-regression": """
        select partition, node as reader, time_ns as end_ns, cast(leader_epoch as bigint) as sequence from (
            select *, lag(leader_epoch) over (partition by partition, node order by time_ns, row) as before
            from metadata
            where source = {SAMPLE} and kind = {OF_PARTITION} and leader_epoch >= 0 and partition != {NONE}
        )
        where leader_epoch < before
        union all
        select partition, node, read_ns, cast(leader_epoch as bigint) from (
            select *, lag(leader_epoch) over (partition by partition, node, step order by row) as before,
                   lag(last_offset) over (partition by partition, node, step order by row) as reached
            from replicas where leader_epoch >= 0
        )
        where leader_epoch < before and base_offset > reached
        union all
        select partition, client, read_ns, cast(leader_epoch as bigint) from (
            select *, lag(leader_epoch) over (partition by partition, client, span order by row) as before,
                   lag(log_offset) over (partition by partition, client, span order by row) as reached
            from reads where leader_epoch >= 0
        )
        where leader_epoch < before and log_offset > reached
    """,
    "under-acknowledged": """
        with state as (
            select partition, number, since_ns, error_ns,
                   bit_count(isr) < least(min_insync, bit_count(replicas)) as short
            from truth
        ),
        numbered as (
            select *, number - row_number() over (partition by partition, short order by number) as island from state
        ),
        period as (
            select partition, min(since_ns) as begin_ns, max(number) as last, max(error_ns) as error_ns
            from numbered where short group by partition, island
        ),
        closed as (
            select p.*, coalesce(n.since_ns, {FOREVER}) as end_ns
            from period p left join state n on n.partition = p.partition and n.number = p.last + 1
        )
        select s.partition, s.client, s.sequence
        from sent s join closed c on c.partition = s.partition
        where s.outcome = {OK} and s.completed_ns != {MISSING} and s.acks = -1
          and s.invoked_ns - c.error_ns - 1000000000L >= c.begin_ns
          and s.completed_ns + c.error_ns + 1000000000L < c.end_ns
    """,
    "unclean": """
        with elected as (
            select *, isr_before | elr_before | if(replicas_before & ~replicas != 0, isr, 0) as eligible
            from truth
            where leader_before is not null and leader != leader_before and leader != {NONE} and life = life_before
        )
        select partition, leader as reader, since_ns as begin_ns
        from elected
        where (eligible >> leader) & 1 = 0 and not (isr_before = 0 and (last_known_before >> leader) & 1 = 1)
    """,
    "two-controllers": f"""
        with claim as (
            select world, node, leader_epoch as epoch
            from metadata where kind = {{OF_CONTROLLER}} and source = {{TRUTH}}
            union
            select l.world, l.node, cast(e.value_micro div {MICRO} as int)
            from metrics l
            join metrics e on e.world = l.world and e.node = l.node and e.time_ns = l.time_ns
            where l.metric = {code_of("quorum_leader")} and e.metric = {code_of("quorum_epoch")}
              and l.absent = 0 and e.absent = 0 and l.value_micro = cast(l.node as bigint) * {MICRO}
        ),
        again as (
            select world, node as reader, epoch as sequence from (
                select *, row_number() over (partition by world, epoch order by node) as number from claim
            )
            where number > 1
        ),
        fell as (
            select world, node as reader, leader_epoch as sequence from (
                select *, lag(leader_epoch) over (partition by world order by log_position, row) as before
                from metadata where kind = {{OF_CONTROLLER}} and source = {{TRUTH}}
            )
            where leader_epoch < before
        ),
        both_kinds as (select * from again union all select * from fell)
        select f.partition, b.reader, b.sequence
        from both_kinds b
        join (select world, cell, min(partition) as partition from fact_partitions where cell >= 0 group by world, cell) f
            on f.world = b.world
    """,
    "stale-controller": f"""
        with answer as (
            select l.world, l.node, l.time_ns, l.value_micro div {MICRO} as leader, e.value_micro div {MICRO} as epoch
            from metrics l
            join metrics e on e.world = l.world and e.node = l.node and e.time_ns = l.time_ns
            where l.metric = {code_of("quorum_leader")} and e.metric = {code_of("quorum_epoch")}
              and l.absent = 0 and e.absent = 0
        ),
        claim as (
            select world, node, leader_epoch as epoch, time_ns
            from metadata where kind = {{OF_CONTROLLER}} and source = {{TRUTH}}
            union all
            select world, node, epoch, time_ns from answer where leader = node
        ),
        replaced as (
            select a.world, a.node, a.epoch, min(c.time_ns) as begin_ns
            from (select distinct world, node, epoch from answer where leader = node) a
            join claim c on c.world = a.world and c.epoch > a.epoch and c.node != a.node
            group by a.world, a.node, a.epoch
        ),
        went_on as (
            select r.*, a.time_ns,
                   sum(if(a.leader = r.node and a.epoch = r.epoch and a.time_ns - a.before_ns <= 2500000000L, 0, 1)) over (
                       partition by r.world, r.node, r.epoch order by a.time_ns
                   ) as ended
            from replaced r
            join (
                select q.world, q.node as of, q.epoch as of_epoch, a.*,
                       coalesce(lag(a.time_ns) over (partition by q.world, q.node, q.epoch order by a.time_ns), q.begin_ns)
                           as before_ns
                from replaced q
                join (select node, world as of_world, time_ns, leader, epoch from answer) a
                    on a.of_world = q.world and a.node = q.node and a.time_ns > q.begin_ns
            ) a on a.world = r.world and a.of = r.node and a.of_epoch = r.epoch
        )
        select f.partition, g.node as reader, g.epoch as sequence, g.begin_ns, g.end_ns
        from (
            select world, node, epoch, begin_ns, max(time_ns) as end_ns
            from went_on where ended = 0 group by world, node, epoch, begin_ns
        ) g
        join (select world, cell, min(partition) as partition from fact_partitions where cell >= 0 group by world, cell) f
            on f.world = g.world
        where g.end_ns - g.begin_ns > 5000000000L
    """,
}
"""The SQL text of each anomaly of readers, compacted logs, copies, and of what brokers and controllers reported."""
UNAUDITED_READING_QUERIES = {"skipped": skipped("true")}
"""The text of readers that is another one where nobody audited: what was jumped over was received, or acknowledged."""


# Readers that receive nothing, and last stable offsets that do not move.


_ASSIGNED = 1
"""The value of `positions.event` for an assignment."""
STALL_VIEWS = {
    # Until when each record of a transaction may have held back what stands behind it; offset NONE: anything.
    "holding": """
        select s.partition, s.log_offset,
               case when x.completed_ns != {MISSING} and x.outcome != {INFO}
                    then least(x.completed_ns, x.begun_ns + c.transaction_ns) else x.begun_ns + c.transaction_ns end
                   as until_ns
        from sent s
        join transactions x on x.world = s.world and x.client = s.client and x.transaction = s.transaction
        join fact_cells c on c.world = s.world and c.cell = s.cell and c.transaction_ns is not null
        where s.transaction != {NONE} and (s.outcome != {FAIL} or x.outcome = {FAIL})
    """,
    # Each reader of each partition that it was assigned.
    "reading": f"""
        select r.world, r.cell, r.client, r.level, p.partition, min(p.time_ns) as begin_ns,
               case when k.ended_ns != {{MISSING}} then k.ended_ns else h.last_ns end as end_ns
        from fact_readers r
        join clients k on k.world = r.world and k.client = r.client
        join (select world, client, max(time_ns) as last_ns from heartbeats group by world, client) h
            on h.world = r.world and h.client = r.client
        join fact_partitions f on f.world = r.world and f.cell = r.cell
        join positions p on p.partition = f.partition and p.client = r.client and p.event = {_ASSIGNED}
        group by r.world, r.cell, r.client, r.level, p.partition, k.ended_ns, h.last_ns
    """,
    # What changed who reads a partition: rows of `positions` (place 0) and of `assignments` (1) of clients that an
    # application drives. Who is no member gives up what it had when it assigns itself something else.
    "kept_event": f"""
        with held as (
            select distinct d.world, d.client, d.level, d.bound_ns, p.partition
            from fact_driven d
            join fact_partitions f on f.world = d.world and f.cell = d.cell
            join positions p on p.partition = f.partition and p.client = d.client
            left anti join (select distinct partition from reads where (flags & {{ANONYMOUS}}) != 0) o
                on o.partition = p.partition and d.level = {{COMMITTED}}
        )
        select h.*, p.time_ns, 0 as place, p.row, p.event, p.log_offset
        from held h join positions p on p.client = h.client and p.partition = h.partition
        union all
        select h.*, p.time_ns, 0, p.row, {{NONE}}, {{NONE}}
        from held h
        join positions p on p.world = h.world and p.client = h.client and p.partition != h.partition
            and p.event = {_ASSIGNED}
        left anti join assignments a on a.world = h.world and a.client = h.client
        union all
        select h.*, a.started_ns, 1, a.row, {{NONE}}, {{NONE}}
        from held h join assignments a on a.world = h.world and a.client = h.client
            and a.partition in (h.partition, {{NONE}}) and a.event != 1
    """,
    # When such a client had a partition, and neither sought nor paused, and where it began; NONE: nobody knows.
    "kept_while": f"""
        select world, client, level, bound_ns, partition, time_ns as begin_ns, next_ns as end_ns, row,
               case when event = {_ASSIGNED} then {{NONE}} else log_offset end as next_offset
        from (
            select c.*, coalesce(
                       lead(c.time_ns) over (partition by c.partition, c.client order by c.time_ns, c.place, c.row),
                       case when k.ended_ns != {{MISSING}} then k.ended_ns else b.last_ns end
                   ) as next_ns
            from kept_event c
            join clients k on k.world = c.world and k.client = c.client
            join (select world, client, max(time_ns) as last_ns from heartbeats group by world, client) b
                on b.world = c.world and b.client = c.client
        )
        where event in ({_ASSIGNED}, 2, 5)
    """,
    # Stretches in which a reader received nothing, and how far it had got before.
    "wait": f"""
        select world, client, level, partition, {STALLED_NS}L as bound_ns, time_ns, next_ns, reached from (
            select g.*, lead(g.time_ns) over (partition by g.partition, g.client order by g.place, g.row) as next_ns,
                   max(g.log_offset) over (partition by g.partition, g.client order by g.place, g.row) as reached
            from (
                select world, client, level, partition, 0 as place, 0L as row, begin_ns as time_ns, -1L as log_offset
                from reading
                union all
                select d.world, d.client, d.level, d.partition, 1, r.row, r.read_ns, r.log_offset
                from reading d join reads r on r.partition = d.partition and r.client = d.client
                union all
                select world, client, level, partition, 2, 0L, end_ns, cast(null as bigint) from reading
            ) g
        )
        where next_ns - time_ns >= {STALLED_NS}L
        union all
        select world, client, level, partition, bound_ns, time_ns, next_ns, next_offset - 1 from (
            select g.*, lead(g.time_ns) over (
                       partition by g.partition, g.client, g.begin_ns, g.begun order by g.place, g.row
                   ) as next_ns
            from (
                select h.*, h.row as begun, 0 as place, begin_ns as time_ns from kept_while h
                union all
                select h.world, h.client, h.level, h.bound_ns, h.partition, h.begin_ns, h.end_ns, r.row, r.log_offset + 1,
                       h.row, 1, r.read_ns
                from kept_while h
                join reads r on r.partition = h.partition and r.client = h.client and r.read_ns >= h.begin_ns
                    and r.read_ns < h.end_ns
                union all
                select world, client, level, bound_ns, partition, begin_ns, end_ns, row, {{NONE}}, row, 2, end_ns
                from kept_while
            ) g
        )
        where next_offset != {{NONE}} and next_ns - time_ns >= bound_ns
    """,
    # Since when each record, or a later one of its log, was certainly there for everybody. From the end backwards: Spark goes
    # through a window that ends there once for every row.
    "certain": """
        select partition, level, log_offset, sender, sequence,
               min(since_ns) over (
                   partition by partition, level order by log_offset desc rows between unbounded preceding and current row
               ) as since_ns
        from (
            select l.*,
                   case when s.outcome = {OK} and s.acks != 0 then least(l.read_ns, s.completed_ns) else l.read_ns end
                       as since_ns
            from log l
            left semi join wait w on w.partition = l.partition and w.level = l.level
            left join sent s
                on s.partition = l.partition and s.client = l.sender and s.sequence = l.sequence and not l.unreadable
        )
    """,
    # What they were waiting for: the first record beyond that, and since when it was there to be read.
    "unread": """
        select u.world, u.client, u.partition, u.bound_ns, u.first.log_offset, u.first.sender, u.first.sequence,
               u.next_ns as end_ns, greatest(u.time_ns, u.first.since_ns, max(h.until_ns)) as begin_ns
        from (
            select w.world, w.client, w.level, w.partition, w.bound_ns, w.time_ns, w.next_ns,
                   min(struct(r.log_offset, r.sender, r.sequence, r.since_ns)) as first
            from wait w
            join certain r on r.partition = w.partition and r.level = w.level and r.log_offset > w.reached
            group by w.world, w.client, w.level, w.partition, w.bound_ns, w.time_ns, w.next_ns
        ) u
        left join holding h
            on h.partition = u.partition and u.level = {COMMITTED}
            and (h.log_offset <= u.first.log_offset or h.log_offset = {NONE})
        group by u.world, u.client, u.partition, u.bound_ns, u.first, u.time_ns, u.next_ns
    """,
}
_BEATING = longest_awake(f"""
    select u.world, u.client, u.partition, u.bound_ns, u.log_offset, u.sender, u.sequence,
           greatest(u.begin_ns, a.begin_ns) as begin_ns, least(u.end_ns, a.end_ns) as end_ns
    from unread u
    join (
        select distinct world, client, begin_ns, end_ns from fact_asked where kind = {int(ObservationKind.ASKED)}
    ) a on a.world = u.world and a.client = u.client
    where least(u.end_ns, a.end_ns) - greatest(u.begin_ns, a.begin_ns) >= u.bound_ns
""")


def _series(metric: str) -> str:
    return f"""
        select partition, time_ns, row, value_micro div {MICRO} as value
        from metrics where metric = {code_of(metric)} and partition != {{NONE}} and absent = 0
    """


STALL_QUERIES = {
    "stalled": f"""
        {_BEATING},
        stable as ({_series("last_stable_offset")}),
        high as ({_series("high_watermark")}),
        still as (
            select partition, value, min(time_ns) as from_ns, max(time_ns) as to_ns
            from (
                select *, sum(moved) over (partition by partition order by time_ns, row) as island from (
                    select *, case when value = lag(value) over (partition by partition order by time_ns, row)
                              then 0 else 1 end as moved
                    from stable
                )
            )
            group by partition, value, island
            having max(time_ns) - min(time_ns) >= {STALLED_NS}L
        ),
        above as (
            select s.partition, s.value, min(h.time_ns) as from_ns, max(h.time_ns) as to_ns
            from still s
            join high h on h.partition = s.partition and h.value > s.value and h.time_ns between s.from_ns and s.to_ns
            group by s.partition, s.value, s.from_ns
        ),
        held as (
            select a.partition, a.value, greatest(a.from_ns, max(h.until_ns)) as from_ns, a.to_ns
            from above a
            left join holding h on h.partition = a.partition and (h.log_offset <= a.value or h.log_offset = {{NONE}})
            group by a.partition, a.value, a.from_ns, a.to_ns
        )
        select u.partition, u.sender as client, u.sequence, u.log_offset, u.client as reader,
               case when l.alive.to_ns - l.alive.from_ns >= u.bound_ns then l.alive.from_ns else u.begin_ns end
                   as begin_ns,
               case when l.alive.to_ns - l.alive.from_ns >= u.bound_ns then l.alive.to_ns else u.end_ns end as end_ns,
               case when l.alive.to_ns - l.alive.from_ns >= u.bound_ns
                    then {int(StallCase.READER)} else {int(StallCase.STARVED)} end as case
        from stretch u
        join longest l on l.partition = u.partition and l.client = u.client and l.begin_ns = u.begin_ns
        union all
        select partition, {{NONE}}, {{NONE}}, value, {{NONE}}, from_ns, to_ns, {int(StallCase.STABLE_OFFSET)}
        from held where to_ns - from_ns >= {STALLED_NS}L
    """,
}
"""The SQL text of the anomaly of stalled readers."""


# Records that consumers receive too late, or never, where the trial states a bound.


_STILL_NS = 500_000_000
"""A client that is silent for longer stood still. Heartbeats come every 100 ms."""
_EVER = f"(-{2**62}L)"
_OPEN, _UNMEASURED, _LATE, _GONE = 1, 2, 3, 4
"""What became of a record at a recipient, the least important first. A record that was received in time has none of
these."""
DELIVERY_VIEWS = {
    # When a client's heart was silent.
    "asleep": f"""
        select world, client, before_ns as from_ns, time_ns as to_ns from (
            select world, client, time_ns, lag(time_ns) over (partition by world, client order by time_ns) as before_ns
            from heartbeats
        )
        where time_ns - before_ns > {_STILL_NS}L
    """,
    # Everybody who had a place, one after the other or several at once. Who did not say so ended with the last heartbeat.
    "life": """
        select p.world, p.place, k.client, k.row, k.started_ns,
               case when k.ended_ns != {MISSING} then k.ended_ns else coalesce(h.last_ns, k.started_ns) end as ended_ns,
               k.complete = 1 and k.exit_code = 0 as orderly
        from fact_places p
        join clients k on k.world = p.world and k.planned = p.planned and k.started_ns != {MISSING}
        left join (select world, client, max(time_ns) as last_ns from heartbeats group by world, client) h
            on h.world = k.world and h.client = k.client
    """,
    # When each place ended, and how whoever ended last did.
    "place": f"""
        select d.world, d.place, d.partition, coalesce(max(l.ended_ns), {_EVER}) as end_ns,
               coalesce(max_by(l.orderly, struct(l.ended_ns, -l.row)), false) as orderly,
               coalesce(max_by(l.client, l.row), {{NONE}}) as last_client
        from fact_due d left join life l on l.world = d.world and l.place = d.place
        group by d.world, d.place, d.partition
    """,
    # When one of a place stood still, and when nobody had it.
    "absence": f"""
        select l.world, l.place, s.from_ns, s.to_ns
        from life l join asleep s on s.world = l.world and s.client = l.client
        union all
        select world, place, coalesce(until_ns, {_EVER}), started_ns from (
            select *, max(ended_ns) over (
                       partition by world, place order by started_ns, row rows between unbounded preceding and 1 preceding
                   ) as until_ns
            from life
        )
        where until_ns is null or started_ns > until_ns
    """,
    # When each place was first given each record, and who of it was.
    "handed_over": """
        select l.place, g.partition, g.sender, g.sequence, min(struct(g.read_ns, g.row, g.client)) as first
        from life l join given g on g.world = l.world and g.client = l.client
        where not g.unreadable
        group by l.place, g.partition, g.sender, g.sequence
    """,
    # Acknowledged records of which a place was not given any copy in time. A group owes nothing from before it began.
    "overdue": """
        select s.world, s.partition, s.row, s.client, s.sequence, s.log_offset, s.key, s.size, s.invoked_ns, s.completed_ns,
               c.bound_ns, p.place, p.end_ns, p.orderly, h.first.read_ns as seen_ns,
               coalesce(h.first.client, p.last_client) as reader
        from sent s
        join fact_cells c on c.world = s.world and c.cell = s.cell and c.bound_ns is not null
        join place p on p.partition = s.partition
        left join beginning b on b.partition = s.partition
        left join handed_over h
            on h.place = p.place and h.partition = s.partition and h.sender = s.client and h.sequence = s.sequence
        where s.outcome = {OK} and s.invoked_ns >= 0
          and (c.commit is null or (b.start is not null and (s.log_offset = {NONE} or s.log_offset >= b.start)))
          and (h.first is null or h.first.read_ns > s.invoked_ns + c.bound_ns)
    """,
    # For how much of the wait the place or the producer was not there to measure: of moments that are named twice, once.
    "slept": """
        select row, place, sum(greatest(0L, to_ns - greatest(from_ns, coalesce(reached_ns, from_ns)))) as slept_ns
        from (
            select *, max(to_ns) over (
                       partition by row, place order by from_ns, to_ns rows between unbounded preceding and 1 preceding
                   ) as reached_ns
            from (
                select o.row, o.place, greatest(a.from_ns, o.invoked_ns) as from_ns,
                       least(a.to_ns, o.end_ns, coalesce(o.seen_ns, {FOREVER})) as to_ns
                from overdue o
                join (
                    select o.row, o.place, a.from_ns, a.to_ns
                    from overdue o join absence a on a.world = o.world and a.place = o.place
                    union all
                    select o.row, o.place, s.from_ns, s.to_ns
                    from overdue o join asleep s on s.world = o.world and s.client = o.client
                ) a on a.row = o.row and a.place = o.place and a.to_ns > o.invoked_ns
            )
        )
        group by row, place
    """,
}
DELIVERY_QUERIES = {
    "late": f"""
        with became as (
            select o.*, case
                when o.seen_ns is null and o.orderly and o.invoked_ns between o.end_ns - o.bound_ns + 1 and o.end_ns
                    then {_OPEN}
                when least(o.end_ns, coalesce(o.seen_ns, {{FOREVER}})) - o.invoked_ns - coalesce(s.slept_ns, 0L) <= o.bound_ns
                    then {_UNMEASURED}
                when o.seen_ns is null then {_GONE} else {_LATE} end as state
            from overdue o left join slept s on s.row = o.row and s.place = o.place
        ),
        worst as (
            select partition, row, client, sequence, log_offset, key, size, invoked_ns, completed_ns, bound_ns,
                   max(state) as state, bool_or(seen_ns is null) as gone, max(seen_ns) as seen_ns,
                   max_by(reader, struct(state, coalesce(seen_ns, {{FOREVER}}), -place)) as reader
            from became
            group by partition, row, client, sequence, log_offset, key, size, invoked_ns, completed_ns, bound_ns
        )
        select w.partition, w.client, w.sequence, w.log_offset, w.reader, w.invoked_ns as begin_ns, w.completed_ns as end_ns,
               case when w.gone then {{MISSING}} else w.seen_ns end as seen_ns, w.invoked_ns + w.bound_ns as other_ns,
               case when w.state = {_UNMEASURED} then {int(LateCase.STOOD_STILL)}
                    when w.state = {_LATE} then {int(LateCase.LATE)}
                    when p.end_uncommitted is null or o.partition is not null then {int(LateCase.UNAUDITED)}
                    else {int(LateCase.MISSING)} end as case
        from worst w
        join fact_partitions p on p.partition = w.partition
        left join passed_over o on o.partition = w.partition
        {cleaning("w")}
        where w.state >= {_UNMEASURED} and not (w.gone and {cleaned("w", tombstone="w.size = {NONE}")})
    """,
}
"""The SQL text of the anomaly of late delivery."""
