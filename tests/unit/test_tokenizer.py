"""Counting tokens without an engine."""

import json

import pytest

from infra.engines.fake_text import count_prompt
from infra.models.tokenizer import ChatTemplate, shows_tools, tokenizer_of
from jobs.errors import BadTemplate
from jobs.model import Model
from jobs.ports.engine import Several

pytestmark = pytest.mark.unit

TEMPLATE = """{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}
{{ bos_token }}{{ m.role }}:{{ m.content | tojson }}
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"""


def model(path="", engine="vllm", kind="chat") -> Model:
    return Model(name="m", kind=kind, path=str(path), engine=engine)


@pytest.mark.parametrize("prompt", ["", "abcd", "abcde", (("system", "Be brief."), ("user", "東京"))])
def test_the_fake_model_is_counted_as_the_fake_engine_counts(prompt):
    tokenizer = tokenizer_of(model(engine="fake"))
    assert (len(tokenizer.ids(prompt)), tokenizer.exact) == (count_prompt(prompt)[0], True)


def test_equal_beginnings_have_equal_ids():
    tokenizer = tokenizer_of(model(engine="fake"))
    one, two = tokenizer.ids("the same beginning, one end"), tokenizer.ids("the same beginning, other")
    assert one[:4] == two[:4]


def test_a_folder_without_a_tokenizer_is_counted_by_characters_and_says_so(tmp_path):
    assert not tokenizer_of(model(tmp_path)).exact


@pytest.mark.parametrize("place", ["file", "config", "named"])
def test_the_chat_template_is_found_and_rendered_wherever_it_lies(tmp_path, place):
    config = {"bos_token": {"content": "<s>"}}
    if place == "file":
        (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    else:
        named = [{"name": "rag", "template": "x"}, {"name": "default", "template": TEMPLATE}]
        config["chat_template"] = TEMPLATE if place == "config" else named
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert ChatTemplate(tmp_path).render([("user", "Tür")]) == '<s>user:"Tür"\nassistant:'


def test_what_the_models_template_refuses_is_told(tmp_path):
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    with pytest.raises(BadTemplate, match="no tools"):
        ChatTemplate(tmp_path).render([("tool", "x")])


def test_a_folders_own_tokenizer_counts_the_rendered_template(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel({"[UNK]": 0, "user": 1, "assistant": 2, ":": 3, "hello": 4}, unk_token="[UNK]")
    made = tokenizers.Tokenizer(words)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.enable_truncation(2)
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.role }}:{{ m.content }} {% endfor %}assistant"
    )
    tokenizer = tokenizer_of(model(tmp_path))
    assert (list(tokenizer.ids((("user", "hello"),))), tokenizer.exact) == ([1, 3, 4, 2], True)


@pytest.mark.parametrize(
    ("template", "shows"),
    [
        ("{{ messages }}", False),
        ("{% if tools %}{{ tools }}{% endif %}{{ messages }}", True),
        ([{"name": "default", "template": "{{ messages }}"}, {"name": "tool_use", "template": "{{ tools }}"}], True),
    ],
)
def test_a_template_that_mentions_tools_shows_them(tmp_path, template, shows):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    assert shows_tools(Model(name="m", kind="chat", path=str(tmp_path), engine="vllm")) is shows


@pytest.mark.parametrize("prompt", [(1, 2, 3), Several(("abcdefgh", (5, 6)))])
def test_token_ids_and_several_texts_are_counted_as_the_fake_engine_counts(prompt):
    tokenizer = tokenizer_of(Model(name="f", kind="completion", path="", engine="fake"))
    assert len(tokenizer.ids(prompt)) == count_prompt(prompt)[0]
