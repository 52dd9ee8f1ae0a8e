"""What the proxy's journal has of a rule, in words."""

import pytest

from prozess.clusters.messages.placing import journal_in_words


@pytest.mark.parametrize(
    ("matched", "acted", "words"),
    [
        (0, 0, "no message matched"),
        (1, 0, "1 message matched, and was not held"),
        (1, 1, "1 message matched, and was held"),
        (3, 0, "3 messages matched, and none of them was held"),
        (3, 1, "3 messages matched, and 1 of them was held"),
        (3, 2, "3 messages matched, and 2 of them were held"),
        (1200, 1200, "1,200 messages matched, and all were held"),
    ],
)
def test_the_effect_is_told_in_one_sentence_for_one_and_for_many(matched, acted, words):
    assert journal_in_words(matched, acted, "held") == words
