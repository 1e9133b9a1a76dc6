"""Texts are split into batches within the limits of an endpoint."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from armarium.providers.batches import BatchLimits, estimated_tokens, prepare_input, split_batches

ANY_TEXT = st.text(st.characters(), max_size=200)
LIMITS = st.builds(
    BatchLimits,
    texts=st.integers(1, 8),
    tokens=st.integers(1, 100),
    tokens_per_text=st.integers(1, 50),
)


@given(st.lists(ANY_TEXT, max_size=40), LIMITS)
def test_every_text_is_in_one_batch_and_no_batch_is_over_the_limits(texts: list[str], limits: BatchLimits) -> None:
    cut = list(split_batches(texts, limits))
    assert [position for positions in cut for position in positions] == list(range(len(texts)))
    for positions in cut:
        assert 1 <= len(positions) <= limits.texts
        tokens = sum(estimated_tokens(texts[position]) for position in positions)
        assert tokens <= limits.tokens or len(positions) == 1


@given(st.lists(ANY_TEXT, max_size=40), LIMITS)
def test_a_batch_ends_only_where_the_next_text_does_not_fit(texts: list[str], limits: BatchLimits) -> None:
    cut = list(split_batches(texts, limits))
    for earlier, later in pairwise(cut):
        tokens = sum(estimated_tokens(texts[position]) for position in [*earlier, later.start])
        assert len(earlier) == limits.texts or tokens > limits.tokens


@given(st.text(st.characters(exclude_categories=[])), st.integers(1, 20))
def test_any_text_can_be_sent_after_it_was_cut_at_a_character(text: str, tokens: int) -> None:
    sent = prepare_input(text, tokens)
    assert sent
    assert len(sent.encode("utf-8")) <= 3 * tokens
    assert sent == " " or text.encode("utf-8", "replace").decode().startswith(sent)


def test_a_short_text_is_sent_as_it_is() -> None:
    assert prepare_input("naïve 日本語 😀", 100) == "naïve 日本語 😀"
