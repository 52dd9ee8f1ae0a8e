"""What files say cannot steer a terminal, nor a page of Markdown, nor make XML that is none."""

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from prozess.harness.console import PrintableConsole, console
from prozess.harness.printable import PrintableStream, printable, printable_streams
from prozess.harness.report.summary import as_code, as_text
from tests.unit.prozess.app.test_cli import called

EVIL = "\x1b[31mred\x1b]0;title\x07\x9b2J\r\u202eover\ud800"
SHOWN = r"\x1b[31mred\x1b]0;title\x07\x9b2J\r\u202eover\ud800"


@given(st.text(alphabet=st.characters()))
def test_no_text_leaves_anything_that_a_terminal_obeys(text):
    made = printable(text)
    assert all(c.isprintable() or c in "\t\n" or c.isspace() or ord(c) > 0xFF for c in made)
    assert not {chr(n) for n in (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F))} & set(made)
    made.encode("utf-8")


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_ordinary_text_stays_as_it_is(text):
    assert printable(text) == text


def test_streams_are_printable_within_and_as_they_were_afterwards(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with printable_streams():
        sys.stdout.write(EVIL + "\n")
        sys.stdout.writelines([EVIL])
    assert sys.stdout is out
    assert out.getvalue() == f"{SHOWN}\n{SHOWN}"


def test_a_stream_takes_no_bytes_and_has_what_its_stream_has():
    stream = PrintableStream(io.StringIO())
    with pytest.raises(TypeError, match="a text is written, not bytes"):
        stream.write(b"x")
    assert not stream.isatty()


NOT_EVEN_BY_RICH = EVIL.replace("\x07", "").replace("\r", "")[:-1]
"""What rich itself leaves in a text."""


def test_of_a_console_styles_are_escape_sequences_and_texts_never():
    out = io.StringIO()
    made = PrintableConsole(file=out, force_terminal=True, color_system="standard", width=200, highlight=False)
    made.print(Text(NOT_EVEN_BY_RICH, style="red"))
    assert out.getvalue() == f"\x1b[31m{printable(NOT_EVEN_BY_RICH)}\x1b[0m\n"


def test_what_a_file_says_reaches_the_terminal_as_a_text(tmp_path, monkeypatch, capsys):
    trial = tmp_path / "evil.toml"
    trial.write_text('name = "x"\ntitle = "\\u001b[2Jgone"\n')
    assert called(monkeypatch, "plan", str(trial), "--isolation", "signals") == 0
    trial.write_text('name = "x"\ntitle = "x"\n"\\u001b[2Jkey" = 1\n')
    assert called(monkeypatch, "plan", str(trial)) == 254
    told = "".join(capsys.readouterr())
    assert "\x1b" not in told
    assert r"\x1b[2Jgone" in told


def test_the_console_goes_past_the_stream_that_is_printable_and_is_so_itself(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with printable_streams():
        console().print(Text(NOT_EVEN_BY_RICH))
    assert out.getvalue() == f"{printable(NOT_EVEN_BY_RICH)}\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two *stars*", r"two \*stars\*"),
        ("[x](http://evil) ![y](z)", r"\[x\](http://evil) \!\[y\](z)"),
        ("<script>&amp;", r"\<script\>\&amp;"),
        ("a\n\n# heading", r"a \# heading"),
        ("a | b", r"a \| b"),
    ],
)
def test_a_title_is_a_text_in_markdown(text, shown):
    assert as_text(text) == shown


@pytest.mark.parametrize(("text", "shown"), [("a > 0", "`a > 0`"), ("a ` | b", r"`` a ` \| b ``")])
def test_code_in_a_table_of_markdown_ends_where_it_ends(text, shown):
    assert as_code(text) == shown
