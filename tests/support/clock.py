"""A clock for tests: time passes when somebody sleeps, and at once."""

from prozess.harness.clock import NS_PER_S


class FakeClock:
    """A clock whose `sleep` advances it at once."""

    def __init__(self, start_ns: int = 0) -> None:
        self.now_ns = start_ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * NS_PER_S)
