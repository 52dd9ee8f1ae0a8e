"""The registry of checkers: what is in it can be sent about, and says what it finds."""

import pickle

from prozess.checkers.registry import CHECKERS, select


def test_checkers_are_sent_about_as_names_of_functions_and_come_back_as_the_same():
    sent = pickle.dumps(select())
    assert pickle.loads(sent) == select()
    assert len(sent) < 20_000


def test_every_checker_says_in_one_sentence_what_it_finds():
    assert all((checker.kernel.__doc__ or "").strip() for checker in CHECKERS.values())
