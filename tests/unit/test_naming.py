"""Which model a name means."""

import pytest

from jobs.errors import NotFound
from jobs.naming import names_of, pool_behind
from jobs.pools import INTERACTIVE, Pool
from jobs.tenancy import Alias

pytestmark = pytest.mark.unit
POOLS = [
    Pool(name="chat", model="big", purpose=INTERACTIVE),
    Pool(name="night", model="big"),
    Pool(name="small", model="small"),
]
ALIASES = [
    Alias(alias="gpt", model="small"),
    Alias(alias="gpt", model="big", tenant="acme"),
    Alias(alias="small", model="big", tenant="acme"),
    Alias(alias="lost", model="gone"),
]


@pytest.mark.parametrize(
    ("asked", "aliases", "pool"),
    [
        ("big", ALIASES, "night"),
        ("gpt", ALIASES, "night"),
        ("gpt", ALIASES[:1], "small"),
        ("small", ALIASES, "small"),
    ],
)
def test_a_name_is_a_models_own_or_the_tenants_alias_or_one_for_all(asked, aliases, pool):
    assert pool_behind(asked, aliases, POOLS).name == pool


def test_a_name_that_means_nothing_is_refused_naming_what_does():
    with pytest.raises(NotFound, match=r"^There is no model named gpt-9\. Served here: big, small, gpt\.$"):
        pool_behind("gpt-9", ALIASES, POOLS)


def test_an_alias_of_what_is_not_served_is_not_offered():
    assert names_of(ALIASES, POOLS) == ["big", "small", "gpt"]
