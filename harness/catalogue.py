"""Every pluggable thing by name, as `package.module:object` strings, resolved on use.

A new fault, checker, workload or backend is one file and one line here (`docs/extending.md`). Because these are strings,
`harness` imports none of the middle packages and `prozess --help` stays fast.
"""

from importlib import import_module
from typing import Any

from harness.errors import BadInput, MissingTool
from harness.foreign import why_not_ours

BACKENDS = {
    "local": "clusters.local:LocalCluster",
    "compose": "clusters.compose:compose_cluster",
    "ssh": "clusters.ssh:SshCluster",
    "attach": "clusters.attach:AttachCluster",
}
WORKLOADS = {
    "log": "harness.workload_plans.log:plan_clients",
    "group": "harness.workload_plans.group:plan_clients",
    "compaction": "harness.workload_plans.compaction:plan_clients",
    "transactions": "harness.workload_plans.transactions:plan_clients",
    "verifiable": "harness.workload_plans.verifiable:plan_clients",
    "verifiable-share": "harness.workload_plans.verifiable:plan_share_clients",
    "errors": "harness.workload_plans.errors:plan_clients",
    "exactly-once": "harness.workload_plans.exactly_once:plan_clients",
    "application": "harness.workload_plans.application:plan_clients",
}
"""Kind of workload → the function that plans its clients."""
RECORDED = "recorded"
"""What `Cell.workload` is where the clients are a test's own (`harness.testing`): nobody planned them, so it is no kind that
a trial file can ask for."""
ROLES = {
    "producer": "workloads.producer:LogProducer",
    "keyed-producer": "workloads.keyed_producer:KeyedProducer",
    "errors-producer": "workloads.errors_producer:ErrorsProducer",
    "text-producer": "workloads.text_producer:TextProducer",
    "verifiable-producer": "workloads.verifiable_clients:VerifiableProducer",
    "verifiable-consumer": "workloads.verifiable_clients:VerifiableConsumer",
    "verifiable-share-consumer": "workloads.verifiable_share:VerifiableShareConsumer",
    "transactor": "workloads.transactor:Transactor",
    "fencer": "workloads.fencer:Fencer",
    "copier": "workloads.copier:Copier",
    "java-copier": "workloads.applications:JavaCopier",
    "application": "workloads.applications:Application",
    "reader": "workloads.reader:LogReader",
    "member": "workloads.member:GroupMember",
    "java-member": "workloads.java_member:JavaMember",
    "observer": "workloads.observer:CommittedObserver",
    "audit": "workloads.audit:AuditReader",
    "sentinel": "workloads.audit:SentinelWriter",
}
"""Role of a client → what runs in its process."""
LAUNCHES = {
    "producer": "workloads.properties:launch_producer",
    "keyed-producer": "workloads.properties:launch_keyed_producer",
    "errors-producer": "workloads.properties:launch_errors_producer",
    "text-producer": "workloads.properties:launch_producer",
    "verifiable-producer": "workloads.verifiable_properties:launch_verifiable_producer",
    "verifiable-consumer": "workloads.verifiable_properties:launch_verifiable_consumer",
    "verifiable-share-consumer": "workloads.verifiable_properties:launch_verifiable_share_consumer",
    "transactor": "workloads.transaction_properties:launch_transactor",
    "fencer": "workloads.transaction_properties:launch_fencer",
    "copier": "workloads.copier_properties:launch_copier",
    "java-copier": "workloads.application_properties:launch_java_copier",
    "application": "workloads.application_properties:launch_application",
    "reader": "workloads.properties:launch_reader",
    "member": "workloads.group_properties:launch_member",
    "java-member": "workloads.java_member_properties:launch_java_member",
    "observer": "workloads.group_properties:launch_observer",
    "audit": "workloads.properties:launch_reader",
    "sentinel": "workloads.properties:launch_sentinel",
}
"""Role → the function that makes its properties and options from the plan."""
FAULTS = {
    "kill": "nemesis.kill:Kill",
    "stop": "nemesis.stop:Stop",
    "pause": "nemesis.pause:Pause",
    "partition": "nemesis.partition:Partition",
    "loss": "nemesis.loss:LosePackets",
    "latency": "nemesis.latency:DelayLinks",
    "late-connections": "nemesis.late_connections:LateConnections",
    "bandwidth": "nemesis.bandwidth:LimitBandwidth",
    "reset": "nemesis.reset:Reset",
    "half-open": "nemesis.half_open:HalfOpen",
    "elect-preferred": "nemesis.elect:ElectPreferred",
    "elect-unclean": "nemesis.elect:ElectUnclean",
    "reassign": "nemesis.reassign:Reassign",
    "configure": "nemesis.configure:Configure",
    "move-controller": "nemesis.move_controller:MoveController",
    "rolling-restart": "nemesis.rolling_restart:RollingRestart",
    "upgrade": "nemesis.upgrade:Upgrade",
    "migrate": "nemesis.migrate:Migrate",
    "finalize-features": "nemesis.finalize_features:FinalizeFeatures",
    "restart-clients": "nemesis.restart_clients:RestartClients",
    "rebalance-storm": "nemesis.rebalance_storm:RebalanceStorm",
    "duplicate-member": "nemesis.duplicate_member:DuplicateMember",
    "disk-full": "nemesis.disk_full:FillDisk",
    "clock": "nemesis.clock:Clock",
    "client-clock": "nemesis.client_clock:ClientClock",
    "disk-slow": "nemesis.disk_slow:SlowDownDisk",
    "disk-hang": "nemesis.disk_hang:HangDisk",
    "disk-error": "nemesis.disk_error:FailDisk",
    "wipe": "nemesis.wipe:WipeDirectory",
    "corrupt-file": "nemesis.corrupt_file:CorruptFile",
    "power-loss": "nemesis.power_loss:LosePower",
}
UNDO_ACTIONS = {
    "start": "nemesis.undo_actions:Start",
    "resume": "nemesis.undo_actions:Resume",
    "unblock": "nemesis.undo_actions:Unblock",
    "repair": "nemesis.undo_actions:Repair",
    "drop-checkpoint": "nemesis.undo_actions:WithoutCheckpoint",
    "nothing": "nemesis.undo_actions:Nothing",
    "reassign": "nemesis.reassign:ReassignBack",
    "configure": "nemesis.configure:ConfigureBack",
}
KERNELS = {
    "lost": "checkers.log:lost",
    "duplicate": "checkers.log:duplicate",
    "reordered": "checkers.log:reordered",
    "offset-conflict": "checkers.log:offset_conflict",
    "phantom": "checkers.identity:phantom",
    "corrupt": "checkers.identity:corrupt",
    "misplaced": "checkers.identity:misplaced",
    "resurrected": "checkers.identity:resurrected",
    "dirty-read": "checkers.reading:dirty_read",
    "skipped": "checkers.reading:skipped",
    "rewound": "checkers.reading:rewound",
    "untold": "checkers.telling:untold",
    "diverged": "checkers.replicas:diverged",
    "snapshot-conflict": "checkers.snapshots:snapshot_conflict",
    "time-travel": "checkers.real_time:time_travel",
    "watermark-regression": "checkers.answers:watermark_regression",
    "epoch-regression": "checkers.answers:epoch_regression",
    "under-acknowledged": "checkers.controllers:under_acknowledged",
    "unclean": "checkers.controllers:unclean",
    "compacted-away": "checkers.compaction:compacted_away",
    "tombstone-lost": "checkers.compaction:tombstone_lost",
}
CELL_KERNELS: dict[str, str] = {
    "stalled": "checkers.stalls:stalled",
    "unenforced": "checkers.telling:unenforced",
    "collateral": "checkers.telling:collateral",
    "torn": "checkers.transactions:torn",
    "lost-transaction": "checkers.transactions:lost_transaction",
    "zombie-write": "checkers.transactions:zombie_write",
    "aborted-read": "checkers.transactions:aborted_read",
    "early-read": "checkers.transactions:early_read",
    "own-read": "checkers.transaction_reads:own_read",
    "information-cycle": "checkers.transaction_cycles:information_cycle",
    "write-cycle": "checkers.transaction_cycles:write_cycle",
    "unprocessed": "checkers.groups:unprocessed",
    "reprocessed": "checkers.groups:reprocessed",
    "commit-regression": "checkers.group_commits:commit_regression",
    "commit-ahead": "checkers.group_commits:commit_ahead",
    "two-owners": "checkers.owners:two_owners",
    "orphaned": "checkers.owners:orphaned",
    "two-controllers": "checkers.controllers:two_controllers",
    "not-exactly-once": "checkers.copies:not_exactly_once",
    "late": "checkers.delivery:late",
}
"""Kernels over a whole cell, for what concerns several of its partitions: groups, transactions."""
BOUNDED = "bounded"
"""Trait of cells of which the trial states a delivery bound."""
CELL_KERNELS_APPLY: dict[str, tuple[str, ...]] = {
    "stalled": ("log", "group", "compaction", "transactions", "errors"),
    "unenforced": ("errors",),
    "collateral": ("errors",),
    "torn": ("transactions",),
    "lost-transaction": ("transactions",),
    "zombie-write": ("transactions",),
    "aborted-read": ("transactions",),
    "early-read": ("transactions",),
    "own-read": ("transactions",),
    "information-cycle": ("transactions",),
    "write-cycle": ("transactions",),
    "unprocessed": ("group",),
    "reprocessed": ("group",),
    "commit-regression": ("group",),
    "commit-ahead": ("group",),
    "two-owners": ("group",),
    "orphaned": ("group",),
    "two-controllers": (*WORKLOADS, RECORDED),
    "not-exactly-once": ("exactly-once", "application"),
    "late": (BOUNDED,),
}
"""Anomaly of CELL_KERNELS → the traits of the cells it is judged in (`harness.plan.Cell.traits`): kinds of workload, or
BOUNDED."""
CELL_KERNELS_BY_PARTITION = (
    *("stalled", "torn", "lost-transaction", "zombie-write", "aborted-read", "early-read", "own-read"),
    *("unprocessed", "reprocessed", "commit-regression", "commit-ahead", "two-owners", "orphaned"),
    "late",
)
"""Kernels of CELL_KERNELS that look at one partition at a time: given a cell that has only some of its partitions, they find
what concerns those, in their order. So engines may give them one at a time, wherever that is (`harness.cell_parts`)."""
CELL_KERNELS_IN_PAIRS = ("unprocessed", "reprocessed", "late")
"""… but not where partitions of a retry topic are looked at with theirs."""
CELL_KERNELS_BY_CASE = ("aborted-read", "early-read", "own-read")
"""… whose witnesses are in the order of their cases first."""
CELL_KERNELS_JUDGING_THE_CELL = ("torn", "lost-transaction", "zombie-write")
"""… which count what they have judged in the whole cell: transactions."""
CELL_KERNELS_KNOW: dict[str, str] = {
    "torn": "transactions",
    "lost-transaction": "transactions",
    "aborted-read": "transactions",
    "early-read": "transactions",
    "zombie-write": "transactions",
    "information-cycle": "transactions",
    "write-cycle": "transactions",
    "two-owners": "polls",
}
"""Kernels of CELL_KERNELS that must know something of all partitions of the cell → what, by its name in CELL_FACTS. Those
that are not in CELL_KERNELS_BY_PARTITION need little beside it."""
CELL_KERNELS_WITHOUT_ROWS = ("two-controllers",)
"""Kernels of CELL_KERNELS that do not look at sends and reads."""
CELL_FACTS = {
    "transactions": "checkers.transaction_parts:gather",
    "polls": "checkers.polls:gather",
}
"""What must be known of all partitions of a cell → who gathers it, …"""
CELL_LOOKS = {
    "transactions": "checkers.transaction_parts:look",
    "polls": "checkers.polls:look",
}
"""… and what looks at one partition for it."""
FACT_KERNELS: dict[str, str] = {
    "unseen": "checkers.log:unseen",
}
"""Kernels over partitions whose findings are facts: counted and printed, judged by no guarantee."""
PIECES = {
    "may-be-split": "checkers.split:may_be_split",
    "perform": "checkers.split:perform",
    "remainders": "checkers.split:remainders",
    "kernels": "checkers.pieces:JUDGED_OF_PLAIN",
    "cell-kernels": "checkers.streamed:STREAMED",
}
"""How a partition is checked in pieces: is it one that can be, a job on one piece, all the jobs, and for which kernels."""
ENGINES = {
    "local": "checkers.engine:check_locally",
    "spark": "spark_checkers.engine:check_with_spark",
}
IMPACTS = {
    "local": "checkers.engine:measure_locally",
    "spark": "spark_checkers.engine:measure_with_spark",
}
"""Engine → what it measures of what faults cost (`harness.impact`)."""
SERVICES = {
    "clients": "workloads.clients:Clients",
    "refuse-bad-clients": "workloads.refusals:refuse_bad_clients",
    "admin": "clusters.admin:Admin",
    "metadata-log": "clusters.ground_truth:decode_ground_truth",
    "replicas": "clusters.segments:read_replicas",
    "log-end": "clusters.segments:log_end",
    "check-variant": "clusters.variants:check_variant",
    "jars": "clusters.jars:ensure_jars",
    "metrics-agent": "clusters.agent:ensure_agent",
    "metrics-agent-here": "clusters.agent:metrics_agent",
    "metrics": "clusters.metrics_observer:MetricsObserver",
    "java": "clusters.java:find_java",
    "spark-java-home": "clusters.java:spark_java_home",
    "toxiproxy": "clusters.toxiproxy:ensure_toxiproxy",
    "archives": "clusters.archives:build_archives",
    "cache": "clusters.cache:make_cache",
    "isolation": "clusters.sandbox:probe",
    "sandbox": "clusters.sandbox:enter_command",
    "engine-problem": "clusters.engine:engine_problem",
    "client-shim": "clusters.shim:client_shim",
    "shim-environment": "clusters.shim:environment",
    "set-clock": "clusters.shim:set_clock",
    "get-clock": "clusters.shim:get_clock",
    "clock-is": "clusters.shim:clock_is",
    "thaw-disks": "clusters.leftovers:thaw",
    "sweep-disks": "clusters.leftovers:sweep",
    "sweep-engine": "clusters.engine:sweep_run",
    "compose-file": "clusters.compose_person:persons_file",
    "images": "clusters.images:list_images",
    "build-images": "clusters.images:build_images",
    "find-image": "clusters.images:find_image",
    "adopt": "clusters.lasting:adopt_plan",
    "nemesis": "nemesis.nemesis:Nemesis",
    "check-fault": "nemesis.parameters:check_parameters",
    "heal": "nemesis.heal:heal_run",
    "open-faults": "nemesis.journal:open_faults",
    "hold-alive": "nemesis.heal:hold_alive",
    "oracle": "spark_checkers.oracle:second_opinion",
    "trends": "spark_checkers.trends:find_trends",
    "spark-session": "spark_checkers.session:start_session",
    "doctor": "clusters.doctor:probes",
    "tool-versions": "clusters.tool_versions:tool_versions",
    "listen": "clusters.host_process:listen",
    "relay": "clusters.host:start_relay",
    "recorded-producer": "workloads.recorded_producer:RecordedProducer",
    "recorded-consumer": "workloads.recorded_consumer:RecordedConsumer",
    "seal-recorded": "workloads.recorded_client:seal",
    "end-recorded": "workloads.recorded_client:end",
    "fill-processed": "workloads.recorded_client:fill_processed",
    "describe-elsewhere": "clusters.told:describe_elsewhere",
    "live-settings": "clusters.live_settings:live_settings",
    "ask-topic": "workloads.recorded_topics:ask_topic",
}

EXTRAS = {"docker": "docker", "testcontainers": "docker", "paramiko": "ssh"}
"""Module that only some users need → the extra that installs it."""


def resolve(kind: dict[str, str], name: str, *, what: str) -> Any:  # noqa: ANN401 - the object is whatever it is
    """The object a catalogue names; `BadInput` with the known names if there is none such."""
    if name not in kind:
        raise BadInput(f"{what} {name!r} is not known. Known: {', '.join(sorted(kind))}.")
    module, _, attribute = kind[name].partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if why := why_not_ours(missing):
            raise MissingTool(why) from error
        if extra := EXTRAS.get(missing.partition(".")[0]):
            raise MissingTool(
                f"{what} {name!r} needs the Python package {missing!r}: pip install 'prozess[{extra}]'."
            ) from error
        raise


def service(name: str) -> Any:  # noqa: ANN401
    """A service of a middle package; an unknown name is our own mistake."""
    assert name in SERVICES, name
    return resolve(SERVICES, name, what="service")
