"""The prepared folders hold what an engine needs. Whether they answer sensibly is in the engine's own tests."""

import json

import pytest

from infra.models.prepare import prepare_minilm, prepare_tiny

transformers = pytest.importorskip("transformers", reason="the engine is not installed: make setup")

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return prepare_tiny(tmp_path_factory.mktemp("models") / "tiny")


def test_tiny_has_the_tokenizer_and_chat_template_of_smollm2(tiny):
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny)
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Count to 12."}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nCount to 12.<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.convert_ids_to_tokens(ids[:2]) == ["<|im_start|>", "system"]  # special tokens stay whole
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("12")) == ["1", "2"]  # digits one by one
    assert tokenizer.eos_token == "<|im_end|>"


def test_a_model_stops_where_a_chat_turn_ends(tiny):
    generation = json.loads((tiny / "generation_config.json").read_text())
    assert generation["eos_token_id"] == 2
    assert "temperature" not in generation


def test_tiny_is_the_same_for_the_same_seed(tiny, tmp_path):
    again = prepare_tiny(tmp_path / "again")
    other = prepare_tiny(tmp_path / "other", seed=1)
    weights = (tiny / "model.safetensors").read_bytes()
    assert (again / "model.safetensors").read_bytes() == weights
    assert (other / "model.safetensors").read_bytes() != weights


def test_minilm_comes_with_its_pooling(tmp_path):
    folder = prepare_minilm(tmp_path / "minilm")
    assert json.loads((folder / "1_Pooling/config.json").read_text())["pooling_mode_mean_tokens"] is True
