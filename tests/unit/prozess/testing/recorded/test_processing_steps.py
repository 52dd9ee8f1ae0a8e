"""What an application is still at: what counts as processed, what an exception took away, and what nobody can say."""

import asyncio
import json
import threading
from contextlib import contextmanager, suppress

import pytest

from prozess.harness.interfaces.application import Registry
from prozess.harness.run_directory import RunDirectory
from prozess.testing.recorded.processing_steps import ApplicationSteps, Unfinished, produced, unfinished


class Application:
    """A consumer's steps as its calls would make them: records of partition 0, one row of `reads` each."""

    def __init__(self, path, client=1):
        self.run = RunDirectory(path)
        self.registry = Registry(path)
        self.client = self.registry.add_client("consumer", {})
        self.steps, self.rows = ApplicationSteps(self.run, self.registry, self.client), 0

    def poll(self, count=1):
        self.steps.asked(self.rows)
        first, self.rows = self.rows, self.rows + count
        self.steps.given(first, self.rows, {0: self.rows - 1})

    def ask_in_vain(self):
        self.steps.asked(self.rows)

    def commit(self, offset=None):
        self.steps.committing({0: self.rows if offset is None else offset})

    @contextmanager
    def closed_at_the_end(self):
        try:
            yield self
        finally:
            self.steps.closing()

    @contextmanager
    def dying(self, error):
        """What is done within it ends by this error, which leaves the application's code, and closes the consumer."""
        with suppress(type(error)), self.closed_at_the_end():
            yield
            raise error

    @property
    def left(self):
        return unfinished(self.run, self.client, given=self.rows)

    @property
    def facts(self):
        return self.registry.clients[self.client - 1]

    @property
    def hazards(self):
        return [json.loads(text) for text in self.facts.hazards]


@pytest.fixture
def application(tmp_path):
    made = Application(tmp_path)
    yield made
    made.steps.seal()  # nothing of it is open in the tests after this one


def rows(left):
    return [(first, after) for first, after, _ in left.doubtful]


def test_who_asks_for_more_is_done_with_what_it_had(application):
    with application.closed_at_the_end():
        application.poll(3)
        application.ask_in_vain()
    assert application.left == Unfinished()


def test_who_closes_in_order_is_done_with_what_it_had(application):
    with application.closed_at_the_end():
        application.poll()
        application.commit()
    assert application.left == Unfinished()


def test_an_exception_that_leaves_after_the_only_commit_leaves_the_batch_unprocessed(application):
    with application.dying(KeyError()):
        application.poll(2)
        application.poll(3)
        application.commit()
    assert application.left == Unfinished(failed=((2, 5),))


def test_an_exception_without_a_commit_leaves_the_batch_unprocessed(application):
    with application.dying(KeyError()):
        application.poll(3)
    assert application.left.failed == ((0, 3),)


def test_an_exception_after_effects_and_their_commit_accuses_nobody(application):
    with application.dying(KeyError()):
        application.poll(3)
        produced("out")
        application.commit()
    assert application.left.failed == ()
    assert rows(application.left) == [(0, 3)]


def test_an_exception_between_commits_of_single_records_accuses_nobody(application):
    with application.dying(KeyError()):
        application.poll(3)
        application.commit(1)
        application.commit(2)
    assert (application.left.failed, rows(application.left)) == ((), [(0, 3)])


def test_what_was_stored_after_processing_accuses_nobody(application):
    with application.dying(KeyError()):
        application.poll()
        application.steps.committing({0: 1}, stored=True)
    assert (application.left.failed, rows(application.left)) == ((), [(0, 1)])


def test_a_commit_that_raised_itself_accuses_nobody(application):
    error = OSError("no answer")
    with application.dying(error):
        application.poll()
        application.steps.commit_raised(error)
    assert application.left.doubtful == ((0, 1, "the commit itself raised"),)


def test_a_transaction_of_effect_and_offsets_ends_the_step(application):
    with application.dying(KeyError()):
        application.poll(2)
        produced("out")
        application.steps.committed_with_effects({0: 2})
    assert application.left == Unfinished()


def test_an_exception_that_was_being_handled_all_along_is_none_of_the_records(application):
    try:
        raise ValueError
    except ValueError:
        with application.closed_at_the_end():
            application.poll()
            application.commit()
    assert application.left == Unfinished()


def test_an_interruption_accuses_nobody(application):
    with application.dying(KeyboardInterrupt()):
        application.poll()
        application.commit()
    assert application.left.doubtful == ((0, 1, "KeyboardInterrupt ended it"),)


def test_a_process_that_died_is_doubtful_for_what_it_was_given_last(tmp_path, application):
    application.poll(2)
    application.poll(3)
    assert application.left.doubtful == ((2, 5, "its process ended before it asked for more records"),)
    application.ask_in_vain()
    assert application.left == Unfinished()


def test_a_consumer_that_another_thread_closes_is_doubtful(application):
    working = threading.Thread(target=application.poll)
    working.start()
    working.join()
    application.steps.closing()
    assert application.left.doubtful == ((0, 1, "its thread ended without asking for more records"),)


def test_who_asks_in_one_thread_does_not_speak_for_another(application):
    working = threading.Thread(target=application.poll)
    working.start()
    working.join()
    application.poll(2)
    assert application.left.doubtful[0][:2] == (0, 3), (
        "the first is open still, and so is all behind it, if it dies now"
    )
    application.ask_in_vain()
    application.steps.seal()
    assert rows(application.left) == [(0, 1)]


def test_a_test_that_ends_before_its_consumer_is_closed_is_doubtful(application):
    application.poll()
    application.steps.seal()
    assert application.left.doubtful == ((0, 1, "your code was still processing it when the test ended"),)


@pytest.mark.parametrize(("error", "failed"), [(None, ()), (KeyError(), ((0, 1),))])
def test_a_task_tells_how_it_ended(application, error, failed):
    async def work():
        application.poll()
        await asyncio.sleep(0)
        if error is not None:
            raise error

    async def run():
        await asyncio.gather(asyncio.create_task(work()), return_exceptions=True)

    asyncio.run(run())
    application.steps.seal()
    assert application.left == Unfinished(failed=failed)


def test_a_commit_of_a_thread_that_never_asked_shows_that_records_are_handed_over(application):
    application.poll()
    application.commit()
    assert "handed-over" not in application.facts.how
    other = threading.Thread(target=application.commit)
    other.start()
    other.join()
    assert "handed-over" in application.facts.how


# --- the order of commit and effect ---------------------------------------------------------------------------------------


def test_an_effect_after_a_commit_of_the_whole_batch_is_told_with_its_record(application):
    application.poll(3)
    application.commit()
    produced("out")
    produced("out")
    application.poll()
    assert application.hazards == [
        {"partition": 0, "offset": 2, "records": 3, "what": "a record was produced to out"}
    ]  # fmt: skip


def test_an_effect_before_the_commit_is_in_order(application):
    application.poll(3)
    produced("out")
    application.commit()
    application.poll()
    produced("out")
    assert application.hazards == []
    assert "effects" in application.facts.how


def test_an_effect_after_a_commit_of_some_of_it_is_in_order(application):
    application.poll(3)
    application.commit(2)
    produced("out")
    assert application.hazards == []


def test_an_effect_of_another_thread_is_none_of_this_step(application):
    application.poll()
    application.commit()
    other = threading.Thread(target=produced, args=("out",))
    other.start()
    other.join()
    assert application.hazards == []


def test_what_is_committed_in_a_transaction_is_in_order(application):
    application.poll()
    application.steps.committed_with_effects({0: 1})
    produced("out")
    assert application.hazards == []
