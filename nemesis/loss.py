"""loss: of the packets that others send to the targets a share never arrives. TCP sends them again, ever more slowly."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from harness.configuration import Frozen
from harness.impairments import Impairment, Loss
from harness.protocols import Capability, Node, Scene
from nemesis.impair import ImpairingFault
from nemesis.sides import AnySide, names_of


class LossParameters(Frozen):
    """What is lost."""

    share: float = Field(gt=0.005, lt=1)
    """Of the packets, each by its own chance."""
    others: AnySide = None
    """Whose packets; None: everybody's, clients' too."""


class LosePackets(ImpairingFault):
    """The effect is that of many datagrams about that share does not arrive."""

    name = "loss"
    needs = frozenset({Capability.LOSE})
    parameters_model = LossParameters
    role_parameters = frozenset({"others"})

    def impairments(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[tuple[Node, Impairment]]:
        checked = LossParameters.model_validate(parameters)
        sources = names_of(checked.others) or (None,)
        return [(node, Loss(share=checked.share, source=source)) for node in scene.targets for source in sources]
