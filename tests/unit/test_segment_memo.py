"""Token ids by segments are the ids of the whole, with every segment encoded once it is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.engines.segment_memo import SegmentMemo

pytestmark = pytest.mark.unit
SPECIALS = {"<s>": 1, "<s>>": 2, "</s>": 3}


def by_letter(texts):
    return [[ord(letter) for letter in text] for text in texts]


def whole(text):
    """What a tokenizer does: cut at the longest special token, then encode the rest."""
    ids = []
    while text:
        special = max((s for s in SPECIALS if text.startswith(s)), key=len, default="")
        ids.append(SPECIALS[special] if special else ord(text[0]))
        text = text[len(special) or 1 :]
    return ids


@given(
    st.lists(st.lists(st.sampled_from([*SPECIALS, "a", "b c", "<s", ">", "é"]), max_size=8).map("".join), max_size=9)
)
def test_segments_put_together_are_the_whole(texts):
    memo = SegmentMemo(by_letter, SPECIALS, max_chars=4)
    for _ in range(3):
        assert memo.encode(texts) == [whole(text) for text in texts]


def test_a_segment_that_comes_again_is_remembered_and_then_never_encoded():
    asked = []

    def encode(texts):
        asked.append(sorted(texts))
        return by_letter(texts)

    memo = SegmentMemo(encode, SPECIALS)
    for user in ("u1", "u2", "u3", "u4"):
        memo.encode([f"<s>shared</s>{user}"])
    assert asked == [["shared", "u1"], ["shared", "u2"], ["u3"], ["u4"]]


def test_the_least_recently_used_segment_is_forgotten_first():
    asked = []

    def encode(texts):
        asked.append(sorted(texts))
        return by_letter(texts)

    memo = SegmentMemo(encode, SPECIALS, max_chars=4)
    for text in ("aa", "aa", "bb", "bb", "aa", "cc", "cc"):  # room for two: aa was used after bb
        memo.encode([text])
    asked.clear()
    for text in ("aa", "cc", "bb"):
        memo.encode([text])
    assert asked == [["bb"]]
