"""Posts messages to a webhook: a violation, and the end of a run or of a campaign.

The message is Slack's: an HTTP POST of {"text": …} in JSON, which Mattermost, Rocket.Chat and Discord (at /slack) take, too.
The answer of a webhook never changes a verdict or an exit code: standard error reports a message that was not accepted. The
address is a secret, because anyone who has it can post. Therefore it is never shown, kept or handed on.
"""

import os
import platform
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from prozess.app.run_process import WEBHOOK
from prozess.harness.errors import BadInput, ProzessError
from prozess.harness.verdict import TrialVerdict, Verdict

VARIABLE = WEBHOOK
"""The variable with the address if `--webhook` is not given. No list of processes shows it."""
TIMEOUT_S = 10.0
"""How long a webhook may take to be reached, and then to answer."""
TRIES = 3
"""How often a message is tried that is not accepted."""
_AGAIN = (429, 500, 502, 503, 504)
_TEXT_MAX = 3000
_SIGNS = {Verdict.HELD: "✓", Verdict.VIOLATED: "✗"}
_BACKOFF_S = 0.5


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address that accepts messages, and the source of this machine's name."""

    url: str
    host: str

    def __repr__(self) -> str:
        return f"Webhook({urlsplit(self.url).hostname})"

    def post(self, text: str) -> bool:
        """Posts a message, and returns whether it was accepted. If it was not, standard error has the reason."""
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3 import Retry

        again = Retry(
            total=TRIES - 1,
            backoff_factor=_BACKOFF_S,
            status_forcelist=_AGAIN,
            allowed_methods=["POST"],
            raise_on_status=False,
            respect_retry_after_header=False,  # it may say hours
        )
        adapter = HTTPAdapter(max_retries=again)
        try:
            with requests.Session() as session:
                session.mount("https://", adapter)
                session.mount("http://", adapter)
                # A redirection would hand the message on to whoever it names.
                answer = session.post(self.url, json={"text": text}, timeout=TIMEOUT_S, allow_redirects=False)
        except requests.RequestException as error:
            return self._not_taken(f"{type(error).__name__}")
        return 200 <= answer.status_code < 300 or self._not_taken(f"it answered {answer.status_code}")

    def _not_taken(self, why: str) -> bool:
        # The error's own text would have the address.
        sys.stderr.write(f"prozess: the webhook at {urlsplit(self.url).hostname} did not take the message: {why}.\n")
        sys.stderr.flush()
        return False


def webhook_of(url: str | None, environment: MutableMapping[str, str] = os.environ) -> Webhook | None:
    """Returns the webhook that an option names, or else the environment; None if neither does. BadInput if the address is
    no http:// or https:// URL.

    The variable is taken out of the environment: no process that is started here gets the secret, and no trial of a campaign
    posts by itself.
    """
    named = environment.pop(VARIABLE, "")
    chosen = url or named
    if not chosen:
        return None
    try:
        parts = urlsplit(chosen)
        whole = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        whole = False
    if not whole:
        origin = "--webhook" if url else VARIABLE
        raise BadInput(
            f"{origin} is no address of a webhook. Give all of it, such as https://hooks.example.org/services/…."
        )
    return Webhook(chosen, platform.node() or "this machine")


@contextmanager
def posting_failure(webhook: Webhook | None, what: str) -> Iterator[None]:
    """A context that posts why its block failed, and lets the error go on. `what` is the name of the work, such as
    "smoke, seed 3"."""
    try:
        yield
    except (ProzessError, KeyboardInterrupt) as error:
        if webhook is not None:
            kind, lines = ("failed", [str(error)]) if isinstance(error, ProzessError) else ("interrupted", [])
            webhook.post(message(f"? *{kind}* {_plain(what)}", lines, webhook.host))
        raise


def verdict_message(what: str, verdict: TrialVerdict, run: Path, host: str) -> str:
    """Returns the message about one trial: its verdict, and where its report is."""
    lines = [verdict.sentence, f"run: {run}", f"again: prozess replay {run}"]
    return message(f"{_SIGNS.get(verdict.verdict, '?')} *{verdict.verdict}* {_plain(what)}", lines, host)


def trials_message(what: str, code: int, summary: str, page: str, host: str) -> str:
    """Returns the message about many trials that are over. `code`: the exit code, by which the worst of them is known."""
    worst = {0: Verdict.HELD, 1: Verdict.VIOLATED}.get(code, Verdict.UNKNOWN)
    return message(f"{_SIGNS.get(worst, '?')} *{worst}* {_plain(what)}", [summary, f"index: {page}"], host)


def message(title: str, lines: Sequence[str], host: str) -> str:
    """Returns the text of a message: a title, which may have Slack's marks, and lines, which may not."""
    text = "\n".join([f"{title} (prozess on {_plain(host)})", *map(_plain, lines)])
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 1]}…"


def _plain(text: str) -> str:
    """Returns a text in which Slack finds no mark of its own."""
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, name)
    return text
