"""The base of every value that a file may hold: configurations, plans, verdicts."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value from a file. It is immutable. An unknown key is an error, and so is a number that is infinite or not a
    number."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True, allow_inf_nan=False)
