"""Says in sentences what is wrong with the values of a trial file: unknown keys with their near misses, and values that break
a rule. Mistakes are named by the keys that a person wrote."""

import difflib
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

Path = tuple[int | str, ...]
VALUE_SHOWN_MAX = 100
"""How many characters of a wrong value a sentence shows."""
SHOWN_MAX = 3
"""How many mistakes one sentence names."""
WRONG_KIND = {
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "it must be a table"),
    **dict.fromkeys(("tuple_type", "list_type"), "it must be a list"),
}
"""What pydantic calls a value that is of another kind than is wanted → the rule, in TOML's words."""


def explain(problem: ErrorDetails, path: Path, holders: Iterable[object]) -> str:
    """Returns one mistake as a sentence. `path`: where it is, as a person wrote it; `holders`: the models that may hold its
    last key."""
    where = ".".join(map(str, path)) or "the file"
    if problem["type"] == "extra_forbidden":
        known = sorted(
            {key for holder in holders for kind in _kinds(holder) if _is_model(kind) for key in kind.model_fields}
        )
        near = difflib.get_close_matches(str(path[-1]), known, n=1)
        way_out = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}." if known else "remove it."
        return f"{where} is not a known key; {way_out}"
    if problem["type"] == "missing":
        return f"{where} is missing; give it."
    rule = WRONG_KIND.get(problem["type"], problem["msg"].removeprefix("Value error, "))
    given = repr(problem["input"])
    if isinstance(problem["input"], dict) or len(given) > VALUE_SHOWN_MAX:
        return (
            f"{where}: {rule}."
            if isinstance(problem["input"], dict)
            else f"{where} = {given[:VALUE_SHOWN_MAX]}…: {rule}."
        )
    return f"{where} = {given}: {rule}."


def innermost(problems: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Returns the mistakes that do not only follow from one further inside. A list of workloads whose only one is wrong is
    reported as empty. Where a number or a table may stand, a number that is too great is not also reported as no table."""
    paths = [problem["loc"] for problem in problems]
    of_its_kind = {problem["loc"][:-1] for problem in problems if problem["type"] not in WRONG_KIND}
    return [
        problem
        for problem in problems
        if not any(len(path) > len(problem["loc"]) and path[: len(problem["loc"])] == problem["loc"] for path in paths)
        and not (problem["type"] in WRONG_KIND and problem["loc"][:-1] in of_its_kind and _is_tag(problem["loc"][-1:]))
    ]


def _is_tag(last: Path) -> bool:
    """Returns whether the last part of a place is what pydantic calls an alternative of a union, and no key: `Between`, or
    `function-after[_ordered(), Between]`."""
    return bool(last) and isinstance(last[0], str) and (last[0][:1].isupper() or last[0].startswith("function-"))


def written(problem: ErrorDetails, document: object) -> Path:
    """Returns the keys that a person wrote on the way to a mistake. pydantic puts tags of unions and names of validators
    between them: `action.hold.until.nht` is `action.until.nht` in the document.

    A tag may be a key, too: `do.client.stop.seconds` of `{ kind = "client", client = "b", seconds = 0 }` is `do.seconds`,
    since nothing with `seconds` is below `do.client`, and since 0 stands there.
    """
    path, of_key = problem["loc"], problem["type"] in ("extra_forbidden", "missing")
    ways = [way for way in _ways_through(path, document, may_lack=of_key) if not of_key or way[-1:] == path[-1:]]
    return max(ways, key=lambda way: (_value_at(document, way) == problem["input"], len(way)), default=path)


def _value_at(document: Any, way: Path) -> object:  # noqa: ANN401 - any JSON
    for part in way:
        document = document[part] if not isinstance(document, dict) or part in document else None
    return document


def _ways_through(path: Path, document: Any, *, may_lack: bool) -> Iterator[Path]:  # noqa: ANN401 - any JSON
    """Yields each way to leave tags out, so that the rest are keys of the document. `may_lack`: the last key may be one that
    the document does not have."""
    if not path:
        yield ()
        return
    part, rest = path[0], path[1:]
    index = isinstance(document, list | tuple) and isinstance(part, int) and part < len(document)
    if index or (isinstance(document, dict) and part in document):
        yield from ((part, *way) for way in _ways_through(rest, document[part], may_lack=may_lack))
    elif may_lack and not rest and isinstance(document, dict):
        yield (part,)
    yield from _ways_through(rest, document, may_lack=may_lack)


def truths_for_numbers(model: type[BaseModel], document: object) -> list[tuple[Path, bool]]:
    """Returns where a document has true or false and the model wants a number: path and value. pydantic takes true for 1,
    and a person who writes `partitions = true` means something else."""
    return [(path, value) for path, value in _truths(document, ()) if _wants_number(annotations_at([model], path))]


def explain_truth(path: Path, value: bool) -> str:
    """Returns this mistake as a sentence."""
    return f"{'.'.join(map(str, path))} = {str(value).lower()}: it must be a number."


def annotations_at(start: Iterable[object], path: Path) -> list[object]:
    """Returns what may stand at a path below these annotations. Where a union leaves several ways, all count."""
    found = [kind for annotation in start for kind in _kinds(annotation)]
    for part in path:
        inner: list[object] = []
        for kind in found:
            inner.extend(_below(kind, part))
        found = [kind for annotation in inner for kind in _kinds(annotation)]
    return found


def _below(kind: Any, part: int | str) -> list[object]:  # noqa: ANN401 - whatever an annotation may be
    if _is_model(kind):
        field = kind.model_fields.get(str(part))
        return [] if field is None else [field.annotation]
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(part, int) and origin in (tuple, list, Sequence):
        inside = [argument for argument in arguments if argument is not Ellipsis]
        return [inside[part]] if origin is tuple and Ellipsis not in arguments and part < len(inside) else inside
    if isinstance(part, str) and origin is dict and len(arguments) == 2:
        return [arguments[1]]
    return []


def _kinds(annotation: object) -> Iterator[Any]:
    """Yields the alternatives of an annotation, without what decorates them."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for argument in get_args(annotation):
            yield from _kinds(argument)
    else:
        yield annotation


def _is_model(kind: Any) -> bool:  # noqa: ANN401 - whatever an annotation may be
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _wants_number(kinds: Sequence[object]) -> bool:
    return any(kind in (int, float) for kind in kinds) and not any(kind in (bool, str, Any) for kind in kinds)


def _truths(document: object, path: Path) -> Iterator[tuple[Path, bool]]:
    if isinstance(document, bool):
        yield path, document
    elif isinstance(document, dict):
        for key, value in document.items():
            yield from _truths(value, (*path, str(key)))
    elif isinstance(document, list | tuple):
        for index, value in enumerate(document):
            yield from _truths(value, (*path, index))
