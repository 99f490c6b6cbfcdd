"""What a model folder says about itself before any engine has read it."""

import json

import pytest

from infra.models import facts
from infra.models.registry import Registry
from jobs.errors import BadInput
from tests.support.models import model_folder

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("architecture", "files", "kind"),
    [
        ("LlamaForCausalLM", {}, "completion"),
        ("LlamaForCausalLM", {"tokenizer_config.json": {"chat_template": "{{ x }}"}}, "chat"),
        ("Qwen3ForCausalLM", {"chat_template.jinja": "{{ x }}"}, "chat"),
        ("GPT2LMHeadModel", {}, "completion"),
        ("Qwen3ForCausalLM", {"chat_template.jinja": "{{ x }}", "modules.json": "[]"}, "embedding"),
        ("BertModel", {}, "embedding"),
    ],
)
def test_the_kind_is_told_by_architecture_template_and_modules(tmp_path, architecture, files, kind):
    assert facts.detect_kind(model_folder(tmp_path, {"architectures": [architecture]}, files)) == kind


def test_a_kind_that_the_files_do_not_tell_must_be_said(tmp_path):
    path = model_folder(tmp_path / "model", {"architectures": ["BertForSequenceClassification"]})
    registry = Registry(tmp_path / "models.toml", tmp_path)
    with pytest.raises(BadInput, match=r"BertForSequenceClassification does not tell .* --kind"):
        registry.add("own", path)
    assert registry.add("own", path, kind="embedding").kind == "embedding"


@pytest.mark.parametrize(
    ("config", "files", "tokens"),
    [
        ({}, {}, 2048),
        ({"rope_parameters": {"rope_type": "linear", "factor": 4.0}}, {}, 8192),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, {}, 2048),
        ({}, {"tokenizer_config.json": {"model_max_length": 512}}, 512),
        ({}, {"tokenizer_config.json": {"model_max_length": 1e30}}, 2048),
        ({}, {"sentence_bert_config.json": {"max_seq_length": 256}}, 256),
        ({"text_config": {"max_position_embeddings": 128}}, {}, 128),
        ({"max_position_embeddings": None}, {}, None),
    ],
)
def test_the_context_length_is_the_one_vllm_would_derive(tmp_path, config, files, tokens):
    assert facts.context_length(model_folder(tmp_path, config, files)) == tokens


def test_a_vector_has_the_size_of_the_last_dense_layer_or_the_hidden_size(tmp_path):
    modules = [{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]
    dense = {"modules.json": json.dumps(modules), "2_Dense/config.json": {"out_features": 32}}
    assert facts.embedding_size(model_folder(tmp_path / "a")) == 64
    assert facts.embedding_size(model_folder(tmp_path / "b", files=dense)) == 32


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_configuration_that_is_no_json_object_is_named(tmp_path, content):
    path = model_folder(tmp_path)
    (path / "config.json").write_text(content)
    with pytest.raises(BadInput, match=r"config\.json: it is not "):
        facts.detect_kind(path)


@pytest.mark.parametrize(
    ("config", "overrides", "sizes"),
    [
        ({}, {}, (64,)),
        ({"matryoshka_dimensions": [256, 64, 256]}, {}, [64, 256]),
        ({"is_matryoshka": True}, {}, None),
        ({}, {"is_matryoshka": True}, None),
    ],
)
def test_shorter_vectors_are_what_the_files_or_the_engine_arguments_say(tmp_path, config, overrides, sizes):
    folder = model_folder(tmp_path, {"architectures": ["BertModel"], **config})
    assert facts.embedding_sizes(folder, overrides) == sizes
