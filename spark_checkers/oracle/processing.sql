-- What consumer groups process, with the causes of what is found.

--- view beginning
-- Where the group began: at the first position of a member; at the start where a partition was added to what it had
-- subscribed to, or where it learned that there is no position.
select p.partition,
       case when f.late or p.event = {SOUGHT} or (p.event = {RESET} and c.reset != 'latest') then 0L
            else p.log_offset end as start
from (
    select q.*, row_number() over (partition by q.partition order by q.time_ns, q.row) as number
    from positions q
    join fact_partitions f on f.partition = q.partition
    join fact_cells c on c.world = f.world and c.cell = f.cell
    left semi join member m on m.world = f.world and m.client = q.client
    where (q.event in ({ASSIGNED}, {RESET}) and q.log_offset >= 0) or (q.event = {SOUGHT} and c.reset = 'error')
) p
join fact_partitions f on f.partition = p.partition
join fact_cells c on c.world = f.world and c.cell = f.cell
where p.number = 1

--- view finished
select * from processed where done_ns != {MISSING}

--- view unacknowledged
-- What members sent to retry partitions without learning that it arrived.
select s.* from sent s
left semi join fact_partitions f on f.retried_in = s.partition
where s.outcome != {OK}

--- view release
-- A member gave the partition up, or it was taken away.
select * from assignments where event in ({REVOKE}, {LOST}, {CLOSE})

--- view span_begin
-- Each member's spans: how they began.
select partition, client, span, time_ns, event = {SOUGHT} as sought from (
    select partition, client, greatest(span, 0) as span, time_ns, event,
           row_number() over (partition by partition, client, greatest(span, 0) order by time_ns, row) as number
    from positions
)
where number = 1

--- view handed_on
-- What each record in a retry partition was made from; `source` is the partition that it belongs to.
select distinct f.partition as source, g.partition, g.sender, g.sequence, g.origin
from given g join fact_partitions f on f.retried_in = g.partition
where not g.unreadable and g.origin >= 0

--- view handled
-- The first time that each of them was processed.
select * from (
    select h.source, h.origin, d.*,
           row_number() over (partition by d.partition, d.sender, d.sequence order by d.done_ns, d.row) as number
    from finished d
    join handed_on h on h.partition = d.partition and h.sender = d.sender and h.sequence = d.sequence
)
where number = 1

--- view handled_after
-- The attempt that led to each: the sender's last one before it sent it; and whether that send was confirmed.
select * from (
    select h.source, h.origin, h.row, s.outcome as send_outcome, a.row as attempt,
           row_number() over (partition by h.source, h.row order by a.started_ns desc, a.row desc) as number
    from handled h
    left join sent s on s.partition = h.partition and s.client = h.sender and s.sequence = h.sequence
    left join processed a
        on a.partition = h.source and a.done_ns = {MISSING} and a.client = h.sender
        and {identity(a.sender; a.sequence)} = h.origin and a.started_ns <= s.invoked_ns
)
where number = 1

--- view aimed
-- Whether a step processed the record of its offset. Either of them may not say which it is.
select l.partition, l.log_offset,
       bool_or(l.unreadable or d.sender = {NONE} or d.sequence = {NONE}
               or (d.sender = l.sender and d.sequence = l.sequence)) as rightly
from finished d
join log l on l.partition = d.partition and l.log_offset = d.log_offset
join fact_partitions p on p.partition = l.partition
join fact_cells c on c.world = p.world and c.cell = p.cell and c.isolation = l.level
group by l.partition, l.log_offset

--- view left_over
-- What the group had committed past, and no member has processed, nor anybody who was handed it; and in place of which
-- members processed another record.
select l.partition, l.sender, l.sequence, l.log_offset, p.retried_in, p.world, d.partition is not null as mistaken
from log l
join fact_partitions p on p.partition = l.partition
join fact_cells c on c.world = p.world and c.cell = p.cell and c.commit != 'none' and c.isolation = l.level
left join greatest g on g.partition = l.partition
left join beginning b on b.partition = l.partition
left join aimed d on d.partition = l.partition and d.log_offset = l.log_offset
left anti join handled h on h.source = l.partition and h.origin = {identity(l.sender; l.sequence)}
left anti join log k
    on k.partition = p.retried_in and k.level = l.level and k.origin = {identity(l.sender; l.sequence)}
where not coalesce(d.rightly, false)
  and (d.partition is not null or (l.log_offset >= b.start and l.log_offset < g.top))

--- view taken
-- Each time that a record was processed, and the time before. Where every step of an offset names its record, other
-- records of that offset are others: the log gave it away again.
select *, row_number() over one_record as time_number, lag(row) over one_record as before
from (
    select *, case when named = 1 then sender else {NONE} end as of_sender,
           case when named = 1 then sequence else {NONE} end as of_sequence
    from (
        select *, min(case when sender = {NONE} or sequence = {NONE} then 0 else 1 end)
                      over (partition by partition, log_offset) as named
        from finished
    )
)
window one_record as (partition by partition, log_offset, of_sender, of_sequence order by done_ns, row)

--- view way
-- Each way in which a record of a partition with a retry partition was done, there or here, and the way before.
select *, lag(row) over one_record as before, lag(attempt) over one_record as attempt_before,
       lag(from_retry) over one_record as from_retry_before, lag(send_outcome) over one_record as outcome_before
from (
    select d.partition as source, {identity(d.sender; d.sequence)} as origin, d.done_ns, d.row,
           false as from_retry, d.row as attempt, cast(null as int) as send_outcome
    from finished d join fact_partitions f on f.partition = d.partition and f.retried_in is not null
    union all
    select h.source, h.origin, h.done_ns, h.row, true, a.attempt, a.send_outcome
    from handled h join handled_after a on a.source = h.source and a.row = h.row
)
window one_record as (partition by source, origin order by done_ns, from_retry, row)

--- view again
-- Records that were processed again: rows of `processed`, and the attempts that led to both. `copy`: a further copy of
-- it.
select row, row as attempt, before as attempt_before, cast(null as int) as outcome_before, false as copy
from taken where time_number > 1
union all
select row, null, null, null, true from (
    select *, row_number() over (partition by partition, sender, sequence order by log_offset) as copy_number
    from taken where time_number = 1 and sender != {NONE} and sequence != {NONE}
)
where copy_number > 1
union all
select row, attempt, attempt_before, outcome_before, false from way
where before is not null and (from_retry or from_retry_before)

--- view why_again
-- Why: what is true of each.
select w.row, w.attempt, w.attempt_before, w.copy, a.row is not null and b.row is not null as known,
       w.attempt = w.attempt_before as same_attempt, w.outcome_before != {OK} as unconfirmed,
       coalesce(s.sought, false) as sought,
       a.client = b.client and greatest(a.span, 0) = greatest(b.span, 0) as one_span,
       a.client != b.client and coalesce(m.crashed, false) as crashed,
       a.client != b.client and coalesce(bool_or(
           (r.event = {LOST} and r.client in (a.client, b.client)) or (r.client = b.client and not c.records_lost)
           or (c.twins and n.planned = m.planned)
       ), c.twins and n.planned = m.planned, false) as evicted,
       coalesce(min(case when r.client = b.client then r.started_ns end) <= a.started_ns, false) as released,
       a.partition, a.log_offset, s.time_ns as span_ns
from again w
left join processed a on a.row = w.attempt
left join processed b on b.row = w.attempt_before
left join span_begin s
    on s.partition = a.partition and s.client = a.client and s.span = greatest(a.span, 0)
left join fact_partitions f on f.partition = b.partition
left join fact_cells c on c.world = f.world and c.cell = f.cell
left join member m on m.world = f.world and m.client = b.client
left join member n on n.world = f.world and n.client = a.client
left join release r
    on r.partition = a.partition
    and r.started_ns >= case when b.done_ns = {MISSING} then b.started_ns else b.done_ns end
group by w.row, w.copy, a.row, b.row, w.attempt, w.attempt_before, w.outcome_before, s.sought, a.client, b.client,
         a.span, b.span, m.crashed, m.planned, n.planned, c.twins, a.started_ns, a.partition, a.log_offset, s.time_ns

--- view covered
-- Those of a span before which a commit beyond the record had been acknowledged, and nothing as low was under way since.
select b.attempt, b.attempt_before
from (
    select w.attempt, w.attempt_before, w.partition, w.log_offset, w.span_ns, min(a.completed_ns) as since_ns
    from why_again w
    join accepted a
        on a.partition = w.partition and a.log_offset > w.log_offset and a.completed_ns < w.span_ns
    group by w.attempt, w.attempt_before, w.partition, w.log_offset, w.span_ns
) b
left anti join commits c
    on c.partition = b.partition and c.outcome != {FAIL} and c.invoked_ns < b.span_ns
    and c.log_offset <= b.log_offset
    and case when c.outcome = {OK} then c.completed_ns else {FOREVER} end > b.since_ns

--- view made_again
-- When the topic of a partition was made that had its name after another one, and whether its group's commits are recorded.
select f.partition, f.world, f.cell, not c.records_lost and c.commit = 'auto' as unrecorded, min(t.time_ns) as made_ns
from fact_partitions f
join fact_cells c on c.world = f.world and c.cell = f.cell and c.life > 0
join metadata t on t.partition = f.partition and t.source = {TRUTH} and t.kind = {MetadataKind.PARTITION}
group by f.partition, f.world, f.cell, c.records_lost, c.commit

--- view member_commit
-- What members of groups committed, of topics that were deleted since, too.
select c.* from (
    select f.world, c.client, c.log_offset, c.invoked_ns, c.completed_ns
    from commits c join fact_partitions f on f.partition = c.partition
    union all
    select * from fact_earlier_commits
) c
left semi join member k on k.world = c.world and k.client = c.client

--- view of_another
-- Where a group began there, if nobody was given anything, by what a member was committing for the topic before.
with asked as (
    select p.partition, min_by(p.log_offset, struct(p.time_ns, p.log_offset)) as began, min(p.time_ns) as before_ns
    from positions p
    join made_again a on a.partition = p.partition
    left semi join member m on m.world = a.world and m.client = p.client
    where p.event = {ASSIGNED} and p.log_offset > 0
    group by p.partition
),
seen_by_us as (
    select o.partition, min_by(o.value, struct(o.time_ns, o.value)) as began, min(a.made_ns) as before_ns
    from observations o
    join made_again a on a.partition = o.partition
    left anti join asked k on k.partition = o.partition
    where o.kind = {ObservationKind.COMMITTED} and o.value > 0
    group by o.partition
)
select b.partition, b.began from (select * from asked union all select * from seen_by_us) b
join made_again a on a.partition = b.partition
left semi join member_commit c on c.world = a.world and c.log_offset = b.began and c.invoked_ns < b.before_ns
    and (c.completed_ns >= a.made_ns or c.completed_ns = {MISSING})

--- view given_next
-- The next offset behind each of these records that any member was given.
select partition, log_offset, max(next_offset) as next_offset
from (
    select *, min(case when of_member then log_offset end) over (
               partition by partition order by log_offset desc rows between unbounded preceding and 1 preceding
           ) as next_offset
    from (
        select g.partition, g.log_offset, true as of_member
        from given g
        join made_again a on a.partition = g.partition
        left semi join member m on m.world = g.world and m.client = g.client
        group by g.partition, g.log_offset
        union all
        select o.partition, o.log_offset, false
        from left_over o
        join made_again a on a.partition = o.partition
    )
)
where not of_member
group by partition, log_offset

--- view gone_on
-- The records behind which members went on with what somebody was committing when the topic was made, or later.
select n.partition, n.log_offset
from given_next n
join made_again a on a.partition = n.partition
left semi join member_commit c on c.world = a.world and c.log_offset = n.next_offset
    and (c.completed_ns >= a.made_ns or c.completed_ns = {MISSING})

--- anomaly unprocessed
with given_last as (
    select * from (
        select g.partition, g.log_offset, g.client, g.read_ns, m.crashed,
               row_number() over (partition by g.partition, g.log_offset order by g.read_ns desc, g.row desc)
                   as newest
        from given g
        join member m on m.world = g.world and m.client = g.client
        left semi join left_over o on o.partition = g.partition and o.log_offset = g.log_offset
    )
    where newest = 1
),
reset as (
    select p.partition, p.time_ns, p.log_offset, coalesce(max(a.log_offset), {NONE}) as reached
    from positions p
    join fact_partitions f on f.partition = p.partition
    left semi join member m on m.world = f.world and m.client = p.client
    left join accepted a on a.partition = p.partition and a.completed_ns < p.time_ns
    where p.event = {RESET} group by p.partition, p.time_ns, p.log_offset, p.row
),
tried_last as (
    select * from (
        select *, row_number() over (partition by partition, log_offset order by started_ns desc, row desc) as newest
        from processed where done_ns = {MISSING}
    )
    where newest = 1
),
never_arrived as (
    select s.partition, s.client, max(s.invoked_ns) as invoked_ns
    from unacknowledged s
    left anti join (
        select g.* from given g
        left semi join unacknowledged u
            on u.partition = g.partition and u.client = g.sender and u.sequence = g.sequence
    ) g on g.partition = s.partition and g.sender = s.client and g.sequence = s.sequence and not g.unreadable
    group by s.partition, s.client
)
select o.partition, o.sender as client, o.sequence, o.log_offset, coalesce(g.client, {NONE}) as reader,
       coalesce(g.read_ns, {MISSING}) as seen_ns,
       case when o.mistaken then {GroupCase.MISTAKEN}
            when max(n.invoked_ns) >= max(t.started_ns) then {GroupCase.LEFT_BEHIND}
            when bool_or(o.log_offset < r.log_offset
                         and (g.client is null or (g.read_ns <= r.time_ns and o.log_offset >= r.reached)))
                then {GroupCase.RESET}
            when g.client is null and (bool_or(a.unrecorded) or bool_or(w.log_offset is not null)
                                       or (max(f.next_offset) is null and o.log_offset < max(x.began)))
                then {GroupCase.OF_ANOTHER_TOPIC}
            when max(q.started_ns) >= g.read_ns then {GroupCase.RELEASED}
            when g.crashed then {GroupCase.CRASHED}
            else {GroupCase.NO_CAUSE} end as case
from left_over o
left join given_last g on g.partition = o.partition and g.log_offset = o.log_offset
left join reset r on r.partition = o.partition
left join of_another x on x.partition = o.partition
left join made_again a on a.partition = o.partition
left join given_next f on f.partition = o.partition and f.log_offset = o.log_offset
left join gone_on w on w.partition = o.partition and w.log_offset = o.log_offset
left join release q on q.partition = o.partition and q.client = g.client
left join tried_last t on t.partition = o.partition and t.log_offset = o.log_offset
left join never_arrived n on n.partition = o.retried_in and n.client = t.client
group by o.partition, o.sender, o.sequence, o.log_offset, o.mistaken, g.client, g.read_ns, g.crashed

--- anomaly reprocessed
select d.partition, d.sender as client, d.sequence, d.log_offset, d.client as reader, d.done_ns as end_ns,
       case when w.copy then {GroupCase.DUPLICATE}
            when not w.known then {GroupCase.NO_CAUSE}
            when w.same_attempt and w.unconfirmed then {GroupCase.SENT_AGAIN}
            when w.sought then {GroupCase.SOUGHT}
            when w.one_span then {GroupCase.NO_CAUSE}
            when c.attempt is not null then {GroupCase.COVERED}
            when w.released then {GroupCase.RELEASED}
            when w.crashed then {GroupCase.CRASHED}
            when w.evicted then {GroupCase.EVICTED}
            else {GroupCase.NO_CAUSE} end as case
from why_again w
join processed d on d.row = w.row
left join covered c on c.attempt = w.attempt and c.attempt_before = w.attempt_before
