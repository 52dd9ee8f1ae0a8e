"""An exhibit of the museum: a known defect that a trial shows, and the release that no longer has it."""

import re
from typing import Annotated

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

from prozess.harness.plan.expectations import Selector
from prozess.harness.values import Frozen
from prozess.harness.verdict import SERVER_ERRORS

TICKET = re.compile(r"(?:KAFKA-|librdkafka#)\d+")
"""The id of a ticket of Kafka's or librdkafka's tracker."""


class Exhibit(Frozen):
    """A known defect that the trial shows on the release that it names, and what brings the trial to a release without it.

    Either a second run of the same seed differs by `mended_by`, or the same run has cells of both releases: `mended_cells`.
    """

    ticket: Annotated[str, Field(pattern=rf"^{TICKET.pattern}$")]
    """The ticket: `KAFKA-20322`, `librdkafka#4844`."""
    story: Annotated[str, Field(min_length=1, max_length=400)]
    """What the defect is, in two sentences."""
    trigger: Annotated[str, Field(min_length=1, max_length=200)]
    """What brings it about."""
    affected: Annotated[str, Field(min_length=1)]
    """The release that has the defect, as the trial runs it."""
    mended: Annotated[str, Field(min_length=1)]
    """The release that has it no longer."""
    anomalies: Annotated[tuple[str, ...], Field(min_length=1)]
    """The anomalies by which the defect shows itself."""
    complaint: str = ""
    """With `server-errors` among them: a part of the line that servers log, with no fault near, if they have the defect."""
    mended_by: dict[str, StrictBool | StrictInt | StrictFloat | StrictStr] = Field(default_factory=dict)
    """The settings, as for `--set`, with which the second run has the mended release."""
    mended_cells: Selector = Field(default_factory=dict)
    """The cells of the same run that have the mended release, by their settings. All others have the defect."""

    @model_validator(mode="after")
    def _one_way(self) -> "Exhibit":
        if bool(self.mended_by) == bool(self.mended_cells):
            raise ValueError(
                "an exhibit needs either mended_by (the settings of a second run) or mended_cells (cells of the same run)"
            )
        if (SERVER_ERRORS in self.anomalies) != bool(self.complaint):
            raise ValueError(
                f"complaint says which line of the servers' logs shows the ticket: {SERVER_ERRORS} needs it"
            )
        if self.complaint and self.mended_cells:
            raise ValueError(f"servers are those of the whole run: {SERVER_ERRORS} needs mended_by, not mended_cells")
        return self

    @property
    def in_one_run(self) -> bool:
        """Returns whether both releases stand in one run."""
        return bool(self.mended_cells)
