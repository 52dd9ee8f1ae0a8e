"""Makes the pictures of the README from a finished run: its report, and what the terminal shows, in light and in dark.

    python -m tools.pictures runs/smoke-1-…

The run is checked again, and Chromium takes the pictures of its report.
"""

import os
import re
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, MONOKAI
from rich.text import Text

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
SIZE = {"width": 1200, "height": 760}
COLUMNS = 126
LIMIT_S = 300
THEMES = {"light": DEFAULT_TERMINAL_THEME, "dark": MONOKAI}
_WEB_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""rich names a font that a browser would fetch. The picture is drawn with the reader's own."""


def main(run: Path) -> None:
    """Writes the four pictures of a run."""
    PICTURES.mkdir(exist_ok=True)
    run = run.resolve()
    checked = subprocess.run(
        [sys.executable, "-m", "prozess", "check", str(run), "--engine", "local"],
        env=os.environ | {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    shown = Text.from_ansi(checked.stdout.replace(f"{run.parent}/", "runs/"))
    for name, theme in THEMES.items():
        console = Console(record=True, width=COLUMNS, file=StringIO())
        console.print(Text("$ make run\n"), shown)
        picture = console.export_svg(title="prozess run smoke", theme=theme)
        (PICTURES / f"terminal-{name}.svg").write_text(_WEB_FONT.sub("", picture), encoding="utf-8")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for name in THEMES:
            page = opened.new_page(viewport=SIZE, color_scheme=name)
            page.goto((run / "report.html").as_uri())
            page.locator("pre.copied").evaluate_all(
                "(texts, folder) => texts.forEach(text => text.textContent = text.textContent.replaceAll(folder, 'runs/'))",
                f"{run.parent}/",
            )
            page.screenshot(path=PICTURES / f"report-{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
