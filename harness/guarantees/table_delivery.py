"""The guarantee table, part delivery: what the trial itself promises, where it does."""

from harness.catalogue import BOUNDED
from harness.guarantees.rules import Effect, Guarantee, Rule

DELIVERY = Guarantee(
    anomaly="late",
    promise="Every acknowledged record reaches whoever is to be given it within the bound that the trial states.",
    found=(
        "1 acknowledged record was delivered beyond the stated bound, or never",
        "{n} acknowledged records were delivered beyond the stated bound, or never",
    ),
    did=("delayed 1 acknowledged record beyond the bound", "delayed {n} acknowledged records beyond the bound"),
    undone="would count it",
    nothing="no acknowledged record was owed to anybody who could be seen to be given it",
    workloads=(BOUNDED,),
    source="the trial ([delivery])",
    rules=(
        Rule(
            id="late/excepted-fault",
            when=("faults are excepted", "fault at work"),
            label="a fault",
            reason="the trial excepts what a fault may have delayed, and one was at work before the deadline, or over for "
            "less than the stated recovery",
            change="except_during_faults=false",
            source="the trial (delivery.except_during_faults, delivery.recovery_s)",
        ),
        Rule(
            id="late/unmeasured",
            effect=Effect.NOT_APPLICABLE,
            when=("unmeasured",),
            label="an observer that stood still",
            reason="the record's producer, or who was to be given it, stood still or was dead for as long as would explain "
            "it, or the audit did not end",
            source="A gap of more than 0.5 s between heartbeats of 100 ms",
        ),
    ),
)
