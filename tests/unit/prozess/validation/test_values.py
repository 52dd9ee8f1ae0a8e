"""What a value of a property may be: as ConfigDef and librdkafka's table read it. `tests/contract` asks the programs."""

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.config.known_properties import (
    c_double,
    c_integer,
    is_placeholder,
    number,
    problem,
    properties_of,
    versions,
)

C = ctypes.CDLL(None)
C.strtol.restype = ctypes.c_long
C.strtol.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p), ctypes.c_int]
C.strtod.restype = ctypes.c_double
C.strtod.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p)]
NUMBERS = st.text(st.sampled_from("0123456789+-.xXeEpPaAfFinNIyt _\t"), max_size=12) | st.integers().map(str)
LONG_DECIMALS = st.integers(-(2**70), 2**70).map(str)


def _of_c(convert, text, *more):
    end = ctypes.c_char_p()
    whole = ctypes.create_string_buffer(text.encode())
    found = convert(ctypes.cast(whole, ctypes.c_char_p), ctypes.byref(end), *more)
    return None if ctypes.cast(end, ctypes.c_void_p).value == ctypes.addressof(whole) else found


@given(NUMBERS | LONG_DECIMALS)
def test_whole_numbers_are_read_as_c_reads_them(text):
    found = _of_c(C.strtol, text, 0)
    assert c_integer(text) == (None if found is None else ctypes.c_int32(found & 0xFFFFFFFF).value)


@given(NUMBERS | st.floats().map(repr))
def test_numbers_are_read_as_c_reads_them(text):
    found, ours = _of_c(C.strtod, text), c_double(text)
    assert ours == found or (ours != ours and found is not None and found != found)


@given(st.text(max_size=20), st.sampled_from(["java", "librdkafka"]), st.sampled_from(versions()), st.data())
def test_every_value_is_taken_or_refused_in_a_sentence_and_what_is_taken_can_be_read(value, client, version, data):
    known = properties_of("producer", client, version)
    name = data.draw(st.sampled_from(sorted(known)))
    said = problem(name, value, known[name], client=client)
    assert not said or (said.startswith(f"{name} = {value!r} ") and "Change the value" in said)
    if not said and known[name]["type"] in ("int", "long", "short", "double", "float"):
        assert isinstance(number(value, client=client), int | float)


@given(st.sampled_from(versions()), st.sampled_from(["producer", "consumer", "topic", "broker"]), st.data())
def test_every_default_is_a_value_that_is_taken(version, scope, data):
    known = properties_of(scope, "java", version)
    name = data.draw(st.sampled_from(sorted(known)))
    if known[name].get("default"):
        assert not problem(name, known[name]["default"], known[name])


@pytest.mark.parametrize("value", ["all", "$5", "100%", "a#b", "{x}"])
def test_what_fills_nothing_in_is_no_placeholder(value):
    assert not is_placeholder(value)
