"""Embeddings that somebody waits for, with the stock client, which asks for base64 unless told otherwise."""

import base64
from array import array

import openai
import pytest

from tests.support.api import talking
from tests.support.front import SmallFront

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    with talking(tmp_path_factory.mktemp("embeddings"), front=SmallFront()) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(town):
    return town.openai()


def vectors(made):
    return [entry.embedding for entry in made.data]


def test_vectors_are_the_same_as_numbers_and_as_base64(town, client):
    texts = ["a lamp", "a chair"]
    found = client.embeddings.create(model="embedder", input=texts)
    numbers = client.embeddings.create(model="embedder", input=texts, encoding_format="float")
    body = {"model": "embedder", "input": texts, "encoding_format": "base64"}
    raw = town.http(town.key()).post("/v1/embeddings", json=body).json()
    packed = [array("f", base64.b64decode(entry["embedding"])).tolist() for entry in raw["data"]]
    assert [entry.index for entry in found.data] == [0, 1]
    assert vectors(found) == vectors(numbers) == packed
    assert found.usage.prompt_tokens == found.usage.total_tokens > 0


@pytest.mark.parametrize("given", ["a lamp", [1, 2, 3], [[1, 2, 3], [4, 5]], ["a lamp"]])
def test_a_text_texts_and_token_ids_are_taken(client, given):
    made = client.embeddings.create(model="embedder", input=given, dimensions=8, encoding_format="float")
    assert [len(vector) for vector in vectors(made)] == [8] * (2 if given == [[1, 2, 3], [4, 5]] else 1)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["short", "short", "short", "long " * 9000], "input[3]"),
        ([[1, 2], [3] * 5000], "input[1]"),
        ([7] * 5000, "input"),
    ],
    ids=["texts", "lists of ids", "ids"],
)
def test_an_input_that_is_too_long_is_an_error_that_names_it(client, given, named):
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="embedder", input=given)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", named)
    assert caught.value.body["message"].startswith(named)


def test_an_empty_input_and_a_model_that_writes_are_refused(client):
    with pytest.raises(openai.BadRequestError, match=r"input\[1\] is empty"):
        client.embeddings.create(model="embedder", input=["a lamp", " "])
    with pytest.raises(openai.BadRequestError, match="takes a model of kind embedding; fake is of kind chat"):
        client.embeddings.create(model="fake", input="a lamp")
