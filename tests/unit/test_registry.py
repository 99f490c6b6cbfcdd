"""The model registry: adding, finding, and noticing that weights changed."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.models.prices import OtherCurrency, ensure_example_prices, set_price
from infra.models.registry import BadModel, NotPrepared, Registry, context_length, embedding_size
from jobs.errors import BadInput, ModelChanged, NotFound
from jobs.model import Price
from jobs.tenancy import ITSELF
from tests.support.models import model_folder

pytestmark = pytest.mark.unit


@pytest.fixture
def registry(tmp_path) -> Registry:
    return Registry(tmp_path / "home/models.toml", tmp_path / "home/models")


@pytest.fixture
def folder(tmp_path):
    """Makes a model folder below the test's own."""

    def make(name: str = "model", **given) -> Path:
        return model_folder(tmp_path / name, **given)

    return make


def test_the_fake_model_is_known_and_needs_no_files(registry):
    model = registry.resolve("fake")
    assert (model.kind, model.engine, model.example) == ("chat", "fake", True)
    assert context_length(model) == 4096


def test_an_unknown_model_is_refused_with_the_nearest_and_all_known(registry, folder):
    registry.add("own", folder())
    with pytest.raises(
        NotFound, match=r"no model named smolm2\. Did you mean smollm2\? Known: fake, minilm, own, smollm2"
    ):
        registry.resolve("smolm2")


def test_a_shipped_model_that_is_not_prepared_names_the_command(registry):
    with pytest.raises(NotPrepared, match=r"nightmill models prepare smollm2"):
        registry.resolve("smollm2")


def test_a_prepared_shipped_model_is_known_without_being_added(registry, folder, tmp_path):
    folder("home/models/smollm2", files={"tokenizer.json": {}})
    model = registry.resolve("smollm2")
    assert (model.kind, model.example, model.path) == ("chat", True, str(tmp_path / "home/models/smollm2"))
    assert registry.resolve("smollm2") == model


def test_a_shipped_model_whose_files_went_away_must_be_prepared_again(registry, folder):
    path = folder("home/models/smollm2", files={"tokenizer.json": {}})
    registry.resolve("smollm2")
    (path / "model.safetensors").unlink()
    with pytest.raises(NotPrepared):
        registry.resolve("smollm2")


def test_what_was_added_is_found_by_another_process(registry, folder, tmp_path):
    args = {"max_model_len": 512, "hf_overrides": {"a": [1, 2.5, "x"]}}
    added = registry.add("own", folder(), engine_args=args)
    again = Registry(tmp_path / "home/models.toml", tmp_path / "home/models").resolve("own")
    assert again == added
    assert again.engine_args == args


def test_models_added_at_the_same_time_are_all_there(registry, folder):
    path = folder()
    names = [f"own-{number}" for number in range(12)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda name: registry.add(name, path), names))
    assert set(names) <= set(registry.names())


def test_equal_folders_have_equal_checksums_wherever_they_lie(registry, folder):
    one, two = registry.add("one", folder("a")), registry.add("two", folder("b/c"))
    assert one.checksum == two.checksum
    assert one.checksum != registry.add("three", folder("d", files={"model.safetensors": "v"})).checksum


def test_a_weight_file_of_another_size_is_refused_by_name(registry, folder):
    path = folder()
    registry.add("own", path)
    (path / "model.safetensors").write_text("longer")
    with pytest.raises(ModelChanged, match=r"model own changed .*model\.safetensors had 1 bytes and has 6"):
        registry.resolve("own")


def test_a_file_written_again_is_refused_until_verify_finds_the_same_content(registry, folder):
    path = folder()
    added = registry.add("own", path)
    os.utime(path / "model.safetensors", (1, 1))
    with pytest.raises(ModelChanged, match=r"model\.safetensors was written since"):
        registry.resolve("own")
    assert registry.verify("own").checksum == added.checksum
    assert registry.resolve("own").checksum == added.checksum


def test_verify_finds_a_change_that_kept_size_and_time(registry, folder):
    path = folder()
    registry.add("own", path)
    weights = path / "model.safetensors"
    before = weights.stat()
    weights.write_text("v")
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert registry.resolve("own").name == "own"
    with pytest.raises(ModelChanged, match=r"model\.safetensors has other content"):
        registry.verify("own")


@pytest.mark.parametrize(("change", "words"), [("new", "extra.json is new"), ("gone", "config.json is gone")])
def test_a_file_that_came_or_went_is_refused(registry, folder, change, words):
    path = folder()
    registry.add("own", path)
    if change == "new":
        (path / "extra.json").write_text("{}")
    else:
        (path / "config.json").unlink()
    with pytest.raises(ModelChanged, match=words):
        registry.resolve("own")


def test_files_no_engine_reads_do_not_count(registry, folder):
    path = folder()
    registry.add("own", path)
    (path / "README.md").write_text("words")
    (path / ".cache").mkdir()
    (path / ".cache/x").write_text("x")
    assert registry.resolve("own").name == "own"


def test_adding_again_takes_the_files_as_they_are_now(registry, folder):
    path = folder()
    registry.add("own", path)
    (path / "model.safetensors").write_text("longer")
    assert registry.add("own", path) == registry.resolve("own")


def test_progress_is_told_in_bytes(registry, folder):
    seen = []
    registry.add("own", folder(), progress=lambda done, total: seen.append((done, total)))
    total = seen[-1][1]
    assert seen[-1] == (total, total)


def test_a_removed_model_is_no_longer_known_and_keeps_its_files(registry, folder):
    path = folder()
    registry.add("own", path)
    registry.remove("own")
    assert "own" not in registry.names()
    assert (path / "model.safetensors").exists()
    with pytest.raises(NotFound):
        registry.remove("own")


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 201, "fake"])
def test_a_name_that_cannot_be_used_is_refused(registry, folder, name):
    with pytest.raises(BadModel):
        registry.add(name, folder())


def test_the_fake_engine_may_be_added_with_arguments_of_its_own(registry):
    registry.add("slow", None, kind="embedding", engine="fake", engine_args={"embedding_size": 8, "max_model_len": 99})
    model = registry.resolve("slow")
    assert (embedding_size(model), context_length(model), model.example) == (8, 99, False)


def test_a_registry_file_that_cannot_be_read_is_named(registry, tmp_path):
    file = tmp_path / "home/models.toml"
    file.parent.mkdir()
    file.write_text("[own]\npath = 3\n")
    with pytest.raises(BadInput, match=r"models\.toml: it is no model registry"):
        registry.names()


# ---- prices -------------------------------------------------------------------------------------


class Prices:
    """A price store in memory."""

    def __init__(self) -> None:
        self.found: list[Price] = []
        self.posted: dict[tuple[str, str], int] = {}

    def set_price(self, price: Price, actor: str = ITSELF) -> None:
        self.found.insert(0, price)

    def price(self, model: str) -> Price | None:
        return next((price for price in self.found if price.model == model), None)

    def prices(self) -> list[Price]:
        return self.found

    def balances(self) -> dict[tuple[str, str], int]:
        return self.posted


def test_shipped_models_get_an_example_price_once_and_others_none():
    store = Prices()
    for _ in range(2):
        ensure_example_prices(store, ["fake", "own"], "USD")
    assert store.found == [
        Price(
            version="example-USD",
            model="fake",
            currency="USD",
            input_micro=100_000,
            cached_micro=50_000,
            output_micro=400_000,
            example=True,
        )
    ]


def test_a_price_that_was_set_is_not_replaced_by_an_example():
    store = Prices()
    set_price(store, "fake", "1/1/1", "USD", now=0.0, actor="ann")
    ensure_example_prices(store, ["fake"], "USD")
    assert [price.example for price in store.found] == [False]


def test_an_example_price_does_not_choose_the_books_currency():
    store = Prices()
    ensure_example_prices(store, ["fake"], "USD")
    set_price(store, "own", "1/1/1", "EUR", now=0.0, actor="ann")
    ensure_example_prices(store, ["fake"], "EUR")
    assert store.price("fake").currency == "EUR"


def test_postings_at_an_example_price_do_choose_it():
    store = Prices()
    ensure_example_prices(store, ["fake"], "USD")
    store.posted["tenant:default:usage", "USD"] = 5
    with pytest.raises(OtherCurrency, match="kept in USD"):
        ensure_example_prices(store, ["fake"], "EUR")


def test_a_book_has_one_currency():
    store = Prices()
    set_price(store, "own", "1/1/1", "USD", now=0.0, actor="ann")
    with pytest.raises(OtherCurrency, match="kept in USD"):
        set_price(store, "own", "1/1/1", "EUR", now=1.0, actor="ann")
