"""Pages of the documentation with a part that is written anew by a command, between two marks."""

from pathlib import Path

from harness.errors import BadInput


def write_between(path: Path, begin: str, end: str, text: str) -> None:
    """Put `text` in the place of what stands between the marks. BadInput if the page has none."""
    try:
        page = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be read: {error.strerror}. Give a page with the marks.") from error
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise BadInput(f"{str(path)!r} has no place for the table. Put {begin} and {end} into it, each on a line.")
    path.write_text(f"{before}{begin}\n{text}{end}{after}", encoding="utf-8")
