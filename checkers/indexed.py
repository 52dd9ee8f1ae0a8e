"""An index of a history: made once, shared by all kernels that look at that history, gone with it."""

import weakref
from typing import Any, ClassVar, Self


class Indexed:
    """Base of what is computed from one history object. It must not keep the history: the cache would keep it alive."""

    _known: ClassVar[dict[int, tuple["weakref.ref[Any]", Any]]]

    def __init_subclass__(cls) -> None:
        cls._known = {}

    @classmethod
    def of(cls, history: Any) -> Self:  # noqa: ANN401 - whatever the subclass is made from
        """The index of this very history."""
        name, known = id(history), cls._known
        entry = known.get(name)
        if entry is None or entry[0]() is not history:
            entry = (weakref.ref(history, lambda _: known.pop(name, None)), cls(history))  # type: ignore[call-arg]
            known[name] = entry
        found: Self = entry[1]
        return found
