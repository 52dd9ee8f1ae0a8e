"""The answer that a broker gives to a request with an error, made from the request as Kafka's own `getErrorResponse` does,
and an answer that is given another error. Pure functions."""

from collections.abc import Mapping

from prozess.harness.config.messages.schemas import Body, Member, Structure, UnreadableMessage, Value, structure

_ASKED_AS = {
    "responses": ("topic_data", "topics"),
    "partition_responses": ("partition_data",),
    "topics": ("topics", "topic_data"),
    "partitions": ("partitions", "partition_indexes"),
    "results": ("topics",),
    "results_by_topic_v3_and_below": ("topics",),
    "results_by_transaction": ("transactions",),
    "topic_results": ("topics",),
    "results_by_partition": ("partitions",),
    "coordinators": ("coordinator_keys",),
    "groups": ("groups",),
}
"""The name of an array in an answer → the names that the array has in requests from which it is made."""
_SAME = {
    "partition_index": ("index", "partition", "partition_index"),
    "index": ("index", "partition_index", "partition"),
    "partition": ("partition", "partition_index", "index"),
    "name": ("name", "topic"),
    "topic": ("topic", "name"),
    "key": ("key",),
}
UNSET = {"base_offset": -1, "log_append_time": -1, "log_start_offset": -1, "high_watermark": -1, "offset": -1}


def error_answer(api: int, version: int, request: Body, code: int) -> Body:
    """Returns the body of an answer in which everything that was asked for has this error.

    UnreadableMessage if the answer has no error code in it, or no schema."""
    shape = structure(api, version, answer=True)
    if not _has_code(shape):
        raise UnreadableMessage(f"answers of API {api} in version {version} have no error code")
    body = _made(shape, request, code)
    if not count_errors(body):
        raise UnreadableMessage(
            f"an answer of API {api} in version {version} would have no error in it: nothing was asked for"
        )
    return body


def _has_code(shape: Structure) -> bool:
    return any(
        member.kind == "error_code" or (member.structure is not None and _has_code(member.structure))
        for member in shape.members
    )


def _made(shape: Structure, asked: Mapping[str, Value], code: int) -> Body:
    return {member.name: _value(member, asked, code) for member in shape.members}


def _value(member: Member, asked: Mapping[str, Value], code: int) -> Value:
    if member.kind == "error_code":
        return code
    if member.array:
        return _items(member, asked, code)
    if member.structure is not None:
        return None if member.nullable else _made(member.structure, {}, 0)
    for name in _SAME.get(member.name, (member.name,)):
        if name in asked and not isinstance(asked[name], list | dict):
            return asked[name]
    if member.name in UNSET:
        return UNSET[member.name]
    if member.default is not None:
        return member.default
    return None if member.nullable else _empty(member.kind)


def _items(member: Member, asked: Mapping[str, Value], code: int) -> list[Value]:
    source = next(
        (value for name in _ASKED_AS.get(member.name, (member.name,)) if isinstance(value := asked.get(name), list)), []
    )
    if member.structure is None:
        return []
    return [_made(member.structure, _as_fields(one), code) for one in source]


def _as_fields(one: object) -> Mapping[str, Value]:
    """Returns an element of a request's array as fields: a bare number is a partition, a bare text a key."""
    if isinstance(one, dict):
        return one
    return {"partition": one, "partition_index": one} if isinstance(one, int) else {"key": one, "name": one}


def _empty(kind: str) -> Value:
    match kind:
        case "string":
            return ""
        case "bytes" | "records":
            return b""
        case "uuid":
            return None
        case "bool":
            return False
        case _:
            return 0


def count_errors(body: object) -> int:
    """Returns how many error codes other than 0 a body has."""
    if isinstance(body, dict):
        own = sum(1 for name, value in body.items() if name.endswith("error_code") and value)
        return own + sum(count_errors(value) for value in body.values())
    return sum(count_errors(one) for one in body) if isinstance(body, list) else 0


def with_error(body: Body, code: int) -> Body:
    """Returns an answer in which every error code is this one."""
    return {name: code if name.endswith("error_code") else _replaced(value, code) for name, value in body.items()}


def _replaced(value: Value, code: int) -> Value:
    if isinstance(value, dict):
        return with_error(value, code)
    return [_replaced(one, code) for one in value] if isinstance(value, list) else value
