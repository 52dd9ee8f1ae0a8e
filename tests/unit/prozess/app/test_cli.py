"""The command line: exit codes, one sentence per error, and nothing heavy loaded for help."""

import errno
import json
import os
import subprocess
import sys
from importlib.metadata import version

import pytest
import typer

from prozess import command
from prozess.app.commands import options
from prozess.app.commands.options import SECTIONS
from prozess.app.conduct import SparkAhead, new_run_directory, schedule_finished
from prozess.harness.errors import BadInput, HarnessFailed, Interrupted, MissingTool, NotReady
from prozess.harness.exit_codes import EXIT_CODES, ExitCode
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import load_trial, parse_trial
from prozess.harness.verdict import Verdict
from tests.support.clock import FakeClock


def called(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["prozess", *arguments])
    return command.run()


def test_help_loads_nothing_heavy():
    heavy = "{'pyspark', 'confluent_kafka', 'pyarrow', 'pandas', 'jinja2', 'numpy', 'pydantic', 'rich'}"
    code = f"import sys, prozess.command; loaded = {heavy} & set(sys.modules); assert not loaded, loaded"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_python_without_assertions_is_refused_and_never_taken_for_a_violation():
    refused = subprocess.run([sys.executable, "-O", "-m", "prozess", "--version"], capture_output=True, timeout=60)
    assert refused.returncode == ExitCode.BAD_INPUT
    assert b"do not run Python with -O" in refused.stderr


def test_a_prediction_loads_neither_arrow_nor_what_runs_trials(tmp_path):
    (tmp_path / "producer.properties").write_text("acks=all\n")
    arguments = [
        "prozess",
        "validate",
        "--producer",
        str(tmp_path / "producer.properties"),
        "--minutes",
        "0",
        "--quiet",
    ]
    heavy = ("pyarrow", "pyspark", "confluent_kafka", "scipy", "jinja2")
    unwanted = {*heavy, "prozess.app.conduct", "prozess.app.run.outside_sandbox"}
    code = f"import sys; sys.argv = {arguments}; from prozess import command; command.run(); "
    code += f"loaded = {unwanted} & set(sys.modules); assert not loaded, loaded"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("run",), ("run", "--sede", "1", "smoke"), ("run", "smoke", "--seed", "x")]
)
def test_bad_arguments_are_254_and_never_typers_own_2(monkeypatch, capsys, arguments):
    assert called(monkeypatch, *arguments) == ExitCode.BAD_INPUT
    assert "Traceback" not in capsys.readouterr().err


def test_help_says_of_each_command_what_it_does_in_words_that_fit_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    called(monkeypatch, "--help")
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


def test_an_interrupt_that_a_library_makes_an_error_of_is_an_interrupt(monkeypatch, capsys):
    def raises(*_, **__):
        raise ValueError('Error building "model" validator:\n  KeyboardInterrupt: ')

    monkeypatch.setattr(command, "APP", raises)
    assert called(monkeypatch) == ExitCode.UNKNOWN
    assert capsys.readouterr().err == "Interrupted.\n"


def test_an_interrupt_within_a_function_in_c_is_an_interrupt(monkeypatch, capsys):
    def raises(*_, **__):
        raise SystemError("<built-in method> returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr(command, "APP", raises)
    assert called(monkeypatch) == ExitCode.UNKNOWN
    assert capsys.readouterr().err == "Interrupted.\n"


def test_help_lists_every_command_in_a_section(monkeypatch, capsys):
    called(monkeypatch, "--help")
    shown = capsys.readouterr().out
    commands = typer.main.get_command(command.APP).commands
    assert [section for section in SECTIONS if f"\n{section}:\n" in shown] == [*SECTIONS]
    assert all(shown.count(f"\n  {name} ") == 1 for name in commands), shown


def test_help_is_0(monkeypatch, capsys):
    assert called(monkeypatch, "--help") == 0
    assert "Put your Kafka on trial" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("stamp", "printed"),
    [
        ({"version": "1.2.3"}, "prozess 1.2.3\n"),
        ({"version": None}, "prozess of unknown version\n"),
        ({"version": "1.2.3", "commit": "ab" * 20, "changed": False}, "prozess 1.2.3 (commit abababababab)\n"),
        (
            {"version": "1.2.3", "commit": "ab" * 20, "changed": True},
            "prozess 1.2.3 (commit abababababab, with changes)\n",
        ),
    ],
)
def test_version_prints_the_version_and_of_a_checkout_the_commit(monkeypatch, capsys, stamp, printed):
    monkeypatch.setattr("prozess.harness.history.versions.own_version", lambda: stamp)
    assert called(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == printed


def test_version_is_the_one_that_a_run_is_stamped_with(monkeypatch, capsys):
    assert called(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.startswith(f"prozess {version('prozess')}")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadInput("this value, that rule"), ExitCode.BAD_INPUT),
        (MissingTool("no Java"), ExitCode.HARNESS_FAILED),
        (HarnessFailed("the world"), ExitCode.HARNESS_FAILED),
        (NotReady(awaited="brokers", timeout_s=3, last_seen="none"), ExitCode.HARNESS_FAILED),
        (Interrupted("by the user"), ExitCode.UNKNOWN),
        (KeyboardInterrupt(), ExitCode.UNKNOWN),
        (OSError(errno.ENOSPC, "No space left on device", "x.parquet"), ExitCode.HARNESS_FAILED),
    ],
)
def test_every_error_is_its_exit_code_and_one_sentence(monkeypatch, capsys, error, code):
    def raises(**_):
        raise error

    monkeypatch.setattr(command, "APP", raises)
    assert called(monkeypatch) == code
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Traceback" not in said


def test_a_mistake_of_ours_keeps_its_traceback_in_a_file(monkeypatch, capsys, tmp_path):
    def raises(**_):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(command, "APP", raises)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert called(monkeypatch) == ExitCode.HARNESS_FAILED
    assert "this is a bug in prozess: ZeroDivisionError: ours" in capsys.readouterr().err
    (kept,) = tmp_path.glob("prozess-*.traceback")
    assert "ZeroDivisionError" in kept.read_text()


def test_a_plan_file_is_run_as_it_stands(tmp_path):
    plan = make_plan(load_trial("null"), seed=5)
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    assert options.load_plan(str(tmp_path), seed=9, settings=None) == plan
    assert options.load_plan(str(tmp_path / "plan.json"), seed=9, settings=None) == plan
    with pytest.raises(BadInput, match="run as it stands"):
        options.load_plan(str(tmp_path), seed=9, settings=["seed=1"])
    with pytest.raises(BadInput, match="cannot be read"):
        options.load_plan(str(tmp_path / "none.json"), seed=9, settings=None)


@pytest.mark.parametrize(
    ("workload", "scope"),
    [
        ("log", "producer"),
        ("group", "group"),
        ("transactions", "transaction"),
        ("compaction", "compaction"),
        ("errors", "provocation"),
        ("exactly-once", "copier"),
    ],
)
@pytest.mark.parametrize("among", ["cells", "clients"])
def test_a_plan_file_may_not_carry_a_secret_in_any_configuration(tmp_path, workload, scope, among):
    base = {"provocation.error": "timeout"} if workload == "errors" else {}
    plan = make_plan(parse_trial({"name": "x", "title": "t", "workload": workload, "base": base}, source="x"), seed=1)
    document = json.loads(plan.model_dump_json())
    named = [one if scope == "producer" else one["work"] for one in document[among]]
    configurations = [one["producer" if scope == "producer" else "configuration"] for one in named if len(one) > 1]
    next(filter(None, configurations))["properties"]["sasl.password"] = "secret"
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(BadInput, match=r"sasl\.password"):
        options.load_plan(str(tmp_path), seed=1, settings=None)


def test_settings_are_toml_values_and_anything_else_is_text():
    made = options.overrides(["traffic.rate_hz=50", 'name = "x"', "title=free text", "control=required"])
    assert made == {"traffic.rate_hz": 50, "name": "x", "title": "free text", "control": "required"}
    with pytest.raises(BadInput, match="is not KEY=VALUE"):
        options.overrides(["traffic"])


def test_a_verdict_that_is_not_held_never_exits_0():
    assert {verdict for verdict, code in EXIT_CODES.items() if code == 0} == {Verdict.HELD}
    assert set(EXIT_CODES) == set(Verdict)


def test_two_runs_of_one_second_get_two_directories(tmp_path):
    plan = make_plan(load_trial("null"), seed=5)
    first, second = (new_run_directory(tmp_path, plan, FakeClock()) for _ in range(2))
    assert first.path != second.path
    assert first.rows.is_dir()


def test_runs_that_cannot_be_made_are_said_plainly(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"null-5\S* cannot be made there"):
        new_run_directory(tmp_path / "file", make_plan(load_trial("null"), seed=5), FakeClock())


def test_spark_starts_once_the_schedule_has_done_its_last_deed():
    plan = make_plan(load_trial("smoke"), seed=1)
    last = max(number for number, step in enumerate(plan.steps) if step.do is not None)
    assert not schedule_finished(plan, {"event": "step", "number": last - 1})
    assert schedule_finished(plan, {"event": "step", "number": last})
    assert schedule_finished(plan, {"event": "phase", "name": "heal"})
    assert not schedule_finished(plan, {"event": "phase", "name": "warm-up"})


def test_backend_and_variant_are_chosen_on_the_command_line_and_set_has_the_last_word() -> None:
    from prozess.app.commands.options import chosen, load_plan

    plan = load_plan("smoke", seed=1, settings=chosen("compose", "kraft-combined", None))
    assert (plan.backend, plan.variant.metadata_mode) == ("compose", "kraft-combined")
    assert chosen(None, None, None) is None
    settings = chosen("compose", "zookeeper", ["variant.kafka_version=3.9.1"])
    assert settings is not None
    assert settings[-2:] == ['variant.kafka_version="3.9.2"', "variant.kafka_version=3.9.1"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("prozess sh", {"shrink"}),
        ("prozess run smo", {"smoke"}),
        ("prozess run nigh", {"nightly"}),
        ("prozess explain under", {"under-acknowledged"}),
        ("prozess run smoke --backend lo", {"local"}),
        ("prozess run smoke --variant kraft-c", {"kraft-combined"}),
        ("prozess check --engine s", {"spark"}),
        ("prozess matrix matrix-q", {"matrix-quick"}),
    ],
)
def test_a_shell_completes_commands_and_what_they_are_about(monkeypatch, capsys, words, offered):
    for name, value in completing(words).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        called(monkeypatch)
    assert set(capsys.readouterr().out.split()) == offered


def completing(words):
    """The environment in which bash asks for what may follow these words."""
    return {"_PROZESS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}


def test_the_program_that_a_shell_starts_completes():
    program = "import sys; sys.argv = ['prozess']; from prozess.command import main; main()"
    environment = os.environ | completing("prozess run smo")
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert set(told.stdout.split()) == {"smoke"}, told.stderr


def test_a_half_written_run_is_refused_before_spark_is_started_for_it(monkeypatch, capsys, tmp_path):
    (tmp_path / "plan.json").write_text('{"trial": "smo')
    monkeypatch.setattr(SparkAhead, "start", lambda _: pytest.fail("Spark is started"))
    assert called(monkeypatch, "check", str(tmp_path)) == ExitCode.BAD_INPUT
    assert "is damaged, or half written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("run smoke --seed -1", "--seed -1: the least value is 0. Give 0 or more, or leave --seed out for 1."),
        ("plan smoke --seed x", "--seed x: this is no whole number. Give one, or leave --seed out for 1."),
        ("runs --last 0", "--last 0: the least value is 1. Give 1 or more, or leave --last out for 30."),
        (
            "validate a.properties --minutes few",
            "--minutes few: this is no number. Give one, or leave --minutes out for 5.",
        ),
        ("watch --cluster a:1 --replication-factor 0", "--replication-factor 0: the least value is 1. Give 1 or more."),
    ],
)
def test_a_number_that_an_option_does_not_take_is_refused_in_one_sentence(monkeypatch, capsys, arguments, sentence):
    assert called(monkeypatch, *arguments.split()) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err == f"prozess: {sentence}\n"
