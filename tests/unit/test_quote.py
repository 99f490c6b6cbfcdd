"""jobs/quote.py: a sample scaled up to the whole job."""

import pytest

from jobs.model import Usage
from jobs.ports.intake import SampledPrompts
from jobs.quote import Quote, prefix_hits, quote
from tests.support.values import a_price

pytestmark = pytest.mark.unit


class Letters:
    """A token a letter."""

    exact = True

    def ids(self, prompt):
        return [ord(letter) for letter in prompt]


def quoted(prompts, *, max_tokens=5, faults=0, **changes):
    limits = max_tokens if isinstance(max_tokens, list) else [max_tokens] * len(prompts)
    sample = SampledPrompts(rows=[*range(7, 7 + len(prompts))], prompts=prompts, max_tokens=limits, faults=faults)
    plain = {"rows": 100, "tokenizer": Letters(), "price": a_price(), "context": 50, "block_size": 4, "speed": None}
    return quote(**{**plain, "sample": sample, **changes})


def test_a_sample_is_scaled_to_all_rows():
    assert quoted(["aaaaaaaab", "aaaaaaaac"], speed=(2.0, 10.0)) == Quote(
        rows=100,
        sampled=2,
        faults=0,
        usage=Usage(rows=100, input_tokens=500, cached_tokens=400, output_tokens=500),
        amount_pico=500 * 150_000 + 400 * 75_000 + 500 * 600_000,
        currency="USD",
        cached_share=8 / 18,
        exact_tokens=True,
        seconds=50.0,
        first_row=7,
        first_prompt="aaaaaaaab",
    )


def test_output_is_bounded_by_what_was_asked_and_by_what_the_context_leaves():
    limits = [5, None, 100, 20]
    prompts = ["a" * 10, "b" * 10, "c" * 40, "d" * 60]
    assert quoted(prompts, rows=4, max_tokens=limits).usage.output_tokens == 5 + 40 + 10 + 0


def test_an_embedding_has_no_output_and_no_prefix_cache():
    usage = quoted(["aaaaaaaa", "aaaaaaaa"], rows=2, max_tokens=None, embedding=True).usage
    assert usage == Usage(rows=2, input_tokens=16)


def test_faults_are_counted_and_a_sample_of_nothing_else_costs_nothing():
    found = quoted([], faults=3)
    assert (found.sampled, found.faults, found.usage, found.amount_pico) == (3, 3, Usage(rows=100), 0)
    assert (found.cached_share, found.first_row, found.first_prompt, found.seconds) == (0.0, None, None, None)


@pytest.mark.parametrize(
    ("prompts", "hits"),
    [
        pytest.param(["abcdefghi", "abcdefghi"], 8, id="whole blocks that were seen"),
        pytest.param(["abcdefgh", "abcdefgh"], 4, id="the last token is always computed"),
        pytest.param(["abcdefgh", "abcdefghi"], 8, id="and yet its block is there for a longer prompt"),
        pytest.param(["abcdefghi", "abcdeXXXX"], 4, id="up to the block that differs"),
        pytest.param(["abcdefghi", "XXXXefghi"], 0, id="a block hits only after the same beginning"),
        pytest.param(["abcd", "abcd", ""], 0, id="too short for a block"),
        pytest.param(["aaaaaaaaa"], 0, id="a prompt does not hit itself"),
        pytest.param(["abcde", "Xbcde", "abcde"], 4, id="however long ago"),
    ],
)
def test_prefix_hits_are(prompts, hits):
    assert prefix_hits([Letters().ids(p) for p in prompts], 4) == hits
