"""Sampling parameters by name: known ones pass, a fault is named."""

import pytest

from infra.engines.sampling import BadSampling, read_sampling

pytestmark = pytest.mark.unit


def test_known_parameters_pass_and_null_means_not_given():
    given = '{"temperature":0.5,"max_completion_tokens":9,"stop":"x","seed":null,"logit_bias":{"1":-5}}'
    assert read_sampling(given) == {"temperature": 0.5, "max_tokens": 9, "stop": "x", "logit_bias": {"1": -5}}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ('{"frobnicate":1}', "unknown sampling parameter frobnicate"),
        ('{"max_toks":1}', "unknown sampling parameter max_toks; did you mean max_tokens?"),
        ('{"max_tokens":0}', "max_tokens must be at least 1, not 0"),
        ('{"max_tokens":1.5}', "max_tokens must be a whole number, not 1.5"),
        ('{"max_tokens":true}', "max_tokens must be a whole number, not True"),
        ('{"top_p":0}', "top_p must be more than 0 and at most 1, not 0"),
        ('{"temperature":"hot"}', "temperature must be a number, not 'hot'"),
        ('{"ignore_eos":1}', "ignore_eos must be true or false, not 1"),
        ('{"stop_token_ids":["a"]}', "stop_token_ids must be a list of whole numbers, not ['a']"),
        ('{"logit_bias":[]}', "logit_bias must be an object, not []"),
        ("[]", "the sampling parameters are not an object"),
    ],
)
def test_a_fault_is_named(given, words):
    with pytest.raises(BadSampling) as refused:
        read_sampling(given)
    assert str(refused.value) == words
