"""Who shares a process: only plain producers that no step means, a bounded number of them, and nobody where there are few."""

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.plan import PlannedClient
from harness.schedule import ClientAction, FaultAction, HealAction, Step
from harness.trial import Traffic
from workloads.sharing import ALONE_MAX, RATE_MAX_HZ, ROLES, TOGETHER_MAX, share, targets_of

ROLES_THERE = [
    "producer",
    "producer",
    "producer",
    "keyed-producer",
    "reader",
    "member",
    "transactor",
    "errors-producer",
]


@st.composite
def clients_and_steps(draw):
    """Clients of all kinds, and steps of which some mean some of them."""
    kinds = draw(st.lists(st.sampled_from(ROLES_THERE), max_size=120))
    clients = [
        PlannedClient(
            client=number + 1,
            role=role,
            name=f"{role}-{number}",
            partitions=tuple(range(draw(st.integers(1, 4)))),
            traffic=Traffic(rate_hz=draw(st.sampled_from([1.0, 5.0, 200.0, 10_000.0]))),
            cell=number if role in ("member", "transactor") else None,
            late=draw(st.integers(0, 9)) == 0,
        )
        for number, role in enumerate(kinds)
    ]
    names = draw(st.lists(st.sampled_from([c.name for c in clients]), max_size=4)) if clients else []
    steps = [
        Step(
            name=f"step {number}",
            do=ClientAction(kind="client", do="stop", client=(name,))
            if draw(st.booleans())
            else FaultAction(kind="fault", fault="kill", targets=(f"client:{name}", "leader(0)")),
        )
        for number, name in enumerate(names)
    ]
    return clients, steps, set(names)


@settings(deadline=None, derandomize=True, database=None, max_examples=200)
@given(clients_and_steps())
def test_who_shares_a_process_may_and_no_process_has_too_many_or_too_much_to_do(made):
    clients, steps, meant = made
    groups = share(clients, steps)
    of = {client.client: client for client in clients}
    shared = [of[client] for group in groups for client in group]
    assert len({client.client for client in shared}) == len(shared)
    for client in shared:
        assert client.role in ROLES
        assert client.name not in meant
        assert not client.late
    for group in groups:
        assert 2 <= len(group) <= TOGETHER_MAX
        assert list(group) == sorted(group)
        assert sum(of[c].traffic.rate_hz * len(of[c].partitions) for c in group) <= RATE_MAX_HZ
    fit = [c for c in clients if c.role in ROLES and c.name not in meant and not c.late]
    assert not groups or len(fit) > ALONE_MAX
    idle = [c for c in fit if c.traffic.rate_hz * len(c.partitions) * TOGETHER_MAX <= RATE_MAX_HZ]
    if len(idle) == len(fit) > ALONE_MAX:  # nobody is too busy: as few processes as there can be
        assert len(groups) + len(fit) - len(shared) == -(-len(fit) // TOGETHER_MAX)


def many(role: str = "producer") -> list[PlannedClient]:
    return [
        PlannedClient(client=n, role=role, name=f"producer-{n}", partitions=(n,), traffic=Traffic(rate_hz=5))
        for n in range(1, 2 * ALONE_MAX + 1)
    ]


def test_where_every_producer_is_meant_each_has_a_process():
    for do in (
        FaultAction(kind="fault", fault="pause", targets=("producers",)),
        FaultAction(kind="fault", fault="partition", targets=("leader(0)",), parameters={"others": ["producers"]}),
        ClientAction(kind="client", do="stop", client=("producers",)),
    ):
        assert share(many(), [Step(name="step", do=do)]) == ()


def test_steps_that_mean_no_client_leave_producers_together():
    steps = [
        Step(name="kill", do=FaultAction(kind="fault", fault="kill", targets=("leader(0)",))),
        Step(name="a member", do=FaultAction(kind="fault", fault="kill", targets=("member(0, 1)",))),
        Step(name="heal", do=HealAction(kind="heal", step="kill")),
        Step(name="wait"),
    ]
    assert [target.role for target in targets_of(steps)] == ["member"]
    assert sum(map(len, share(many(), steps))) == 2 * ALONE_MAX
