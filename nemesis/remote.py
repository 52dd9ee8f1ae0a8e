"""Faults of the remote store of tiered storage: brokers do not reach it, or one of its objects is lost or damaged."""

from collections.abc import Sequence
from typing import Literal

from prozess.harness.config.configuration import Variant
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.config.impairments import HarmedObject, Impairment, StoreAway
from prozess.harness.interfaces import Capability, FaultContext, Node
from prozess.harness.plan.schedule import parse_target
from prozess.harness.values import Frozen
from prozess.nemesis.faults import ImpairingFault
from prozess.nemesis.roles import TargetMissing


def _without_store(variant: Variant) -> str | None:
    return None if variant.tiered_storage else "the cluster has no remote store; set variant.tiered_storage = true"


class StoreParameters(Frozen):
    """`how`: the store is not there at all (away), or nobody can write or delete in it (read-only)."""

    how: Literal["away", "read-only"] = "away"


class TakeStoreAway(ImpairingFault[StoreParameters]):
    """The remote store is away: what brokers read, copy and delete there fails. Or it is read-only, so that reading goes on.

    A broker keeps the segments that it cannot copy, and goes on copying when the store is back (KIP-405,
    RemoteLogManager.RLMCopyTask). A reader that needs what only the store has waits. All brokers share the store, so that
    the fault is the same whichever is the target.

    The effect is that where the store was is no directory, or that a file cannot be made in it. For a store that is slow, or
    full, see the fault `method`: it delays or fails calls of LocalTieredStorage.
    """

    name = "store-away"
    nature = FaultNature(harms_store=True)
    needs = frozenset({Capability.HARM_STORE})
    parameters_model = StoreParameters

    @staticmethod
    def means_nothing(variant: Variant, parameters: StoreParameters) -> str | None:
        return _without_store(variant)

    def impairments(self, context: FaultContext, parameters: StoreParameters) -> Sequence[tuple[Node, Impairment]]:
        """Returns the first broker, whose undo is then the same for each such fault: the last one to be healed brings the
        store back."""
        return [(_first_broker(context), StoreAway(how=parameters.how))]


def _first_broker(context: FaultContext) -> Node:
    return min((node for node in context.cluster.nodes if "broker" in node.roles), key=lambda node: node.node_id)


class ObjectParameters(Frozen):
    """`how`: the object's files are gone (lost), or bytes of its records are others (damaged). `which`: the object of which
    of the partition's segments, in the order of their offsets."""

    how: Literal["lost", "damaged"] = "lost"
    which: Literal["first", "middle", "last"] = "middle"


class HarmObject(ImpairingFault[ObjectParameters]):
    """An object of the remote store is lost, or damaged, until the fault is healed: then it is back as it was.

    Brokers believe that it is there (`__remote_log_metadata`), and have deleted their own segment. A consumer that comes to
    it waits. Seen with 4.4.0: librdkafka's gets UNKNOWN_SERVER_ERROR once a second; Kafka's Java consumer gets no exception,
    and asks so often that the broker wrote 56,566 lines in 20 s.

    The effect is that the files are gone, or that the bytes of the object are not what they were.
    """

    name = "harm-object"
    nature = FaultNature(harms_store=True)
    needs = frozenset({Capability.HARM_STORE})
    parameters_model = ObjectParameters
    of_partitions = True

    @staticmethod
    def means_nothing(variant: Variant, parameters: ObjectParameters) -> str | None:
        return _without_store(variant)

    def impairments(self, context: FaultContext, parameters: ObjectParameters) -> Sequence[tuple[Node, Impairment]]:
        """Returns, for each partition that a target names, its object. TargetMissing if the plan has no such partition."""
        numbers = [parse_target(role).partition for role in context.roles]
        chosen = list(context.partitions) if None in numbers else [number for number in numbers if number is not None]
        found: list[tuple[Node, Impairment]] = []
        for partition in chosen:
            if partition not in context.partitions:
                raise TargetMissing(f"the plan has no partition {partition}.")
            topic, number = context.partitions[partition]
            harmed = HarmedObject(topic=topic, number=number, how=parameters.how, which=parameters.which)
            found.append((_first_broker(context), harmed))
        return found
