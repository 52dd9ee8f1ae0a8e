"""Posts the reports of a watch to a webhook, in a thread of its own, so that the watch never waits for the receiver.

At most LINES_MAX lines wait. Lines that wait together are one message, and there is one message a second at most. What is not
taken after the tries of `prozess.app.webhook` is dropped and counted.
"""

import threading
from collections import deque
from collections.abc import Collection, Sequence

from prozess.app.webhook import Webhook, message

LINES_MAX = 100
"""How many lines may wait. The oldest are dropped."""
PAUSE_S = 1.0
"""The least time between two messages, as Slack asks for."""
_SIGNS = {"VIOLATION": "✗", "UNREADABLE": "✗", "OUTAGE": "✗", "UNKNOWN": "?", "OVER": "✓"}
"""The kinds of lines that are posted, the worst first."""


def title_of(kinds: Collection[str], what: str) -> str:
    """Returns the title of a message about lines of these kinds, such as "✗ *OUTAGE* prozess watch of cluster x"."""
    return next((f"{sign} *{kind}* {what}" for kind, sign in _SIGNS.items() if kind in kinds), f"*note* {what}")


class Notices:
    """Lines that are to be posted, and the thread that posts them."""

    def __init__(self, webhook: Webhook, what: str) -> None:
        """`what`: the name of the watched cluster, in a few words."""
        self._webhook, self._what = webhook, what
        self._lines: deque[tuple[str, str]] = deque()
        self._changed = threading.Condition()
        self._over = threading.Event()
        self.posted = self.failed = self.dropped = 0
        """Messages that were taken, messages that were not, and lines that were dropped because too many waited."""
        self._thread = threading.Thread(target=self._post, name="webhook", daemon=True)
        self._thread.start()

    def put(self, kind: str, line: str) -> None:
        """Queues a line for posting, and returns at once."""
        with self._changed:
            self._lines.append((kind, line))
            while len(self._lines) > LINES_MAX:
                self._lines.popleft()
                self.dropped += 1
            self._changed.notify()

    def close(self, timeout_s: float) -> bool:
        """Posts the waiting lines within this time, and returns whether it succeeded."""
        self._over.set()
        with self._changed:
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive() and not self._lines

    def _message(self, lines: Sequence[tuple[str, str]]) -> str:
        title = title_of({kind for kind, _ in lines}, self._what)
        return message(title, [line for _, line in lines], self._webhook.host)

    def _post(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._over.is_set())
                lines = list(self._lines)
                self._lines.clear()
            if not lines:
                return
            if self._webhook.post(self._message(lines)):
                self.posted += 1
            else:
                self.failed += 1
            self._over.wait(PAUSE_S)
