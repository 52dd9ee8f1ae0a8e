"""The SQL of promises of progress: what a client waited for in vain, although it was awake."""

from prozess.harness.interfaces.witnesses import ProgressCase

BEAT_GAP_NS = 1_000_000_000


def longest_awake(stretches: str) -> str:
    """Returns the text of common table expressions. The last one, `longest`, has for each stretch (a client that waited from
    `begin_ns` to `end_ns`) the longest part without a gap between heartbeats, `alive`. `stretches`: the text of `stretch`,
    with `world`, `client`, `partition`, `begin_ns` and `end_ns`."""
    return f"""
    with stretch as ({stretches}),
    edge as (
        select world, client, partition, begin_ns, begin_ns as time_ns from stretch
        union all
        select world, client, partition, begin_ns, end_ns from stretch
        union all
        select s.world, s.client, s.partition, s.begin_ns, h.time_ns
        from stretch s
        join heartbeats h on h.world = s.world and h.client = s.client and h.time_ns > s.begin_ns and h.time_ns < s.end_ns
    ),
    beat as (
        select *, sum(still) over (partition by partition, client, begin_ns order by time_ns) as island
        from (
            select *, case when time_ns - lag(time_ns) over (
                       partition by partition, client, begin_ns order by time_ns
                   ) > {BEAT_GAP_NS}L then 1 else 0 end as still
            from edge
        )
    ),
    longest as (
        select partition, client, begin_ns, max_by(struct(from_ns, to_ns), struct(to_ns - from_ns, -from_ns)) as alive
        from (
            select partition, client, begin_ns, min(time_ns) as from_ns, max(time_ns) as to_ns
            from beat group by partition, client, begin_ns, island
        )
        group by partition, client, begin_ns
    )
    """


PROGRESS_VIEWS = {
    # What a client asked a transaction coordinator for, from when on, and until when it was not over. A fencer serves many
    # cells, with transactional.ids of each.
    "call": f"""
        select x.world, c.cell, c.call_ns, x.client, x.transaction as sequence, p.partition,
               case when x.transaction = {{NONE}} then x.begun_ns else x.end_invoked_ns end as begin_ns,
               case when x.completed_ns != {{MISSING}} then x.completed_ns
                    when k.ended_ns != {{MISSING}} then least(k.ended_ns, x.next_ns)
                    else least(h.last_ns, x.next_ns) end as end_ns,
               case when x.transaction = {{NONE}} then {int(ProgressCase.INITIALISATION)}
                    when x.ended_by = 2 then {int(ProgressCase.ABORT)} else {int(ProgressCase.COMMIT)} end as case
        from (
            select *, lead(begun_ns) over (partition by world, client order by begun_ns, row) as next_ns from transactions
        ) x
        join clients k on k.world = x.world and k.client = x.client
        join fact_serving s on s.world = x.world and s.client = x.client
        join fact_cells c on c.world = s.world and c.cell = s.cell
        join (select world, cell, min(partition) as partition from fact_partitions group by world, cell) p
            on p.world = c.world and p.cell = c.cell
        left join fact_serving o on o.world = c.world and o.cell = c.cell and o.client = x.transactional_id
        join (select world, client, max(time_ns) as last_ns from heartbeats group by world, client) h
            on h.world = x.world and h.client = x.client
        where k.role != {{SENTINEL_ROLE}} or o.client is not null
    """,
}
PROGRESS_QUERIES = {
    "hanging": f"""
        {longest_awake("select * from call where begin_ns != {MISSING} and end_ns - begin_ns >= call_ns")}
        select w.partition, w.client, w.sequence,
               case when l.alive.to_ns - l.alive.from_ns >= w.call_ns then l.alive.from_ns else w.begin_ns end as begin_ns,
               case when l.alive.to_ns - l.alive.from_ns >= w.call_ns then l.alive.to_ns else w.end_ns end as end_ns,
               case when l.alive.to_ns - l.alive.from_ns >= w.call_ns then w.case
                    else {int(ProgressCase.STOOD_STILL)} end as case
        from stretch w
        join longest l on l.partition = w.partition and l.client = w.client and l.begin_ns = w.begin_ns
    """,
}
"""The SQL text of each anomaly of progress."""
