"""Files that are bad in odd ways: each is shown by name, with the rule and the way out, and never as a mistake of ours."""

import json

import pytest

from prozess.harness import inputs
from prozess.harness.config.existing_clusters import read_login
from prozess.harness.config.known_properties import notes_of
from prozess.harness.errors import BadInput, HistoryUnreadable
from prozess.harness.exit_codes import ExitCode
from prozess.harness.run_directory import read_json
from prozess.validation.compose.brokers import read_compose
from prozess.validation.formats.filing import properties_in
from prozess.validation.sources import read_file
from tests.unit.prozess.app.test_cli import called

DEEP = 5_000


def deep(levels=DEEP):
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    ("name", "text", "arguments"),
    [
        ("deep.toml", f"name = 'x'\na = {deep()}\n", ["plan", "FILE"]),
        ("deep.toml", f"name = 'x'\na = {deep()}\n", ["matrix", "FILE"]),
        ("deep.toml", f"name = 'x'\na = {deep()}\n", ["run", "FILE", "--for", "1m"]),
        ("deep.json", deep(100_000), ["validate", "--minutes", "0", "--producer", "FILE"]),
        ("deep.yaml", deep(), ["validate", "--minutes", "0", "--producer", "FILE"]),
        ("deep.properties", "acks=all", ["plan", "smoke", "--set", f"a={deep()}"]),
    ],
)
def test_what_is_nested_too_deeply_is_told_by_name(tmp_path, monkeypatch, capsys, name, text, arguments):
    (tmp_path / name).write_text(text)
    words = [str(tmp_path / name) if word == "FILE" else word for word in arguments]
    assert called(monkeypatch, *words) == ExitCode.BAD_INPUT
    said = capsys.readouterr().err
    assert "nested too deeply" in said
    assert "this is a bug" not in said
    assert name in said or "--set a" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "FILE"],
        ["matrix", "FILE"],
        ["validate", "--minutes", "0", "--producer", "OK", "--accept", "FILE"],
        ["validate", "--minutes", "0", "--application", "FILE"],
        ["plan", "smoke", "--set", "seed=" + "9" * 5_000],
    ],
)
@pytest.mark.parametrize("digits", [5_000, 1_000_001])
def test_a_number_of_many_digits_is_no_mistake_of_ours(tmp_path, monkeypatch, capsys, arguments, digits):
    (tmp_path / "x.toml").write_text("acks = " + "9" * digits)
    (tmp_path / "ok.properties").write_text("acks=all\n")
    names = {"FILE": tmp_path / "x.toml", "OK": tmp_path / "ok.properties"}
    assert called(monkeypatch, *(str(names.get(word, word)) for word in arguments)) == ExitCode.BAD_INPUT
    assert "this is a bug" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "read",
    [
        lambda path: read_file(path, ("producer",)),
        read_login,
        lambda path: properties_in(path.read_text("utf-8"), str(path)),
    ],
)
def test_a_line_that_goes_on_without_an_end_is_refused_before_anybody_joins_it(tmp_path, read):
    path = tmp_path / "endless.properties"
    path.write_text("acks=\\\n" * (inputs.CONTINUED_MAX + 5) + "all\n")
    with pytest.raises(BadInput, match=r"endless.properties:10001: one line goes on over more than 10,000 lines"):
        read(path)
    path.write_text("security.protocol=\\\n" + "#=\\\n\n" * 200)
    read(path)


def test_a_file_of_a_run_that_is_nested_too_deeply_is_unreadable(tmp_path):
    (tmp_path / "x.json").write_text(deep(100_000))
    with pytest.raises(HistoryUnreadable, match=r"x\.json is missing or not readable"):
        read_json(tmp_path / "x.json")


def test_a_deep_value_in_jepsens_history_is_told_with_its_line(tmp_path, monkeypatch, capsys):
    path = tmp_path / "history.edn"
    path.write_text(
        "{:index 0, :type :invoke, :process 0, :f :send, :value [[:send 2 " + deep() + "]], :time 1}\n",
        encoding="utf-8",
    )
    assert called(monkeypatch, "import", "jepsen", str(path), "--out", str(tmp_path / "run")) == ExitCode.BAD_INPUT
    assert "history.edn, line 1: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("topic", "partition", "says"),
    [
        ("t", 2**31, "line 2: partition 2147483648 is not a number from 0 to 2147483647. Mend the line"),
        ("\ud800", 0, r"Topic '\\ud800': its name has characters that cannot be printed"),
        ("a\x1bb", 0, r"Topic 'a\\x1bb': its name has characters that cannot be printed"),
    ],
)
def test_topics_that_kafka_cannot_have_are_refused(tmp_path, monkeypatch, capsys, topic, partition, says):
    events = [
        {"timestamp": 1, "name": "startup_complete"},
        {"timestamp": 2, "name": "producer_send_success", "key": None, "value": "1.5", "topic": topic,
         "partition": partition, "offset": 0},
    ]  # fmt: skip
    (tmp_path / "client").write_text("\n".join(map(json.dumps, events)))
    arguments = ["import", "verifiable", str(tmp_path / "client"), "--out", str(tmp_path / "run")]
    assert called(monkeypatch, *arguments) == ExitCode.BAD_INPUT
    assert says.replace("\\\\", "\\") in capsys.readouterr().err
    assert not list((tmp_path / "run").iterdir())


def test_properties_in_latin_1_are_read_as_java_reads_them(tmp_path):
    path = tmp_path / "a.properties"
    path.write_bytes("client.id=K\xe4se\n".encode("latin-1"))
    assert read_file(path, ["producer"]).scopes["producer"]["client.id"].value == "K\xe4se"


def test_a_byte_order_mark_is_refused_since_java_takes_it_for_a_part_of_the_first_name(tmp_path):
    path = tmp_path / "a.properties"
    path.write_bytes(b"\xef\xbb\xbfacks=all\n")
    with pytest.raises(BadInput, match=r"a\.properties begins with a byte order mark.*Save the file as UTF-8 without"):
        read_file(path, ["producer"]).scopes["producer"]


def test_of_a_property_that_is_there_twice_the_last_counts_and_that_is_told(tmp_path, monkeypatch, capsys):
    path = tmp_path / "a.properties"
    path.write_text("acks=all\nlinger.ms=5\nacks=1\n")
    settings = read_file(path, ["producer"]).scopes["producer"]
    assert settings["acks"].value == "1"
    assert notes_of(settings) == [f"{path}:3: acks is there again, and this one counts"]
    called(monkeypatch, "validate", "--minutes", "0", "--producer", str(path))
    assert "acks is there again" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"acks": "all", "acks": "1"}'),
        ("a.json", '{"producer": {"acks": "all", "linger.ms": 1, "acks": "1"}}'),
        ("a.yaml", "acks: all\nacks: 1\n"),
        ("a.yaml", "producer:\n  acks: all\n  acks: 1\n"),
    ],
)
def test_a_key_that_is_twice_in_a_document_is_refused(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match="'acks' is there twice, and only one can be meant: remove the other"):
        read_file(tmp_path / name, ["producer"]).scopes["producer"]


def test_a_variable_that_is_twice_in_a_compose_file_is_refused_and_a_merged_one_is_not(tmp_path):
    path = tmp_path / "compose.yaml"
    path.write_text("services: {a: {environment: {KAFKA_X: 1, KAFKA_X: 2}}}")
    with pytest.raises(BadInput, match="'KAFKA_X' is there twice"):
        read_compose(path)
    path.write_text("x: &x {KAFKA_NODE_ID: 1}\nservices: {a: {environment: {<<: *x, KAFKA_NODE_ID: 2}}}")
    assert read_compose(path).scopes["broker"]["node.id"].value == "2"
