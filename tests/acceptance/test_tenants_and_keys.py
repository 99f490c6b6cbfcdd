"""Tenants, their keys, grants and aliases, the log of all that, and that a key is nowhere but where it was shown."""

import re

import pytest

from api.cli.exits import Exit
from jobs.tenancy import KEY_PREFIX, MEMBER_SCOPES, Scope
from tests.acceptance.conftest import refused

pytestmark = pytest.mark.acceptance

KEY = re.compile(rf"{KEY_PREFIX}[a-z2-7]{{32}}")


def log(nightmill, *options):
    """(action, tenant, subject, detail), the oldest first, of what a person did."""
    events = [e for e in reversed(nightmill("audit", "--json", *options).json) if e["actor"].startswith("cli:")]
    return [(e["action"], e["tenant"], e["subject"], e["detail"]) for e in events]


# ---- tenants ------------------------------------------------------------------------------------


def test_the_default_tenant_is_always_there(shared):
    (found,) = [t for t in shared("tenants", "list", "--json").json if t["name"] == "default"]
    assert (found["enqueued_tokens"], found["enqueued_tokens_limit"], found["disabled_at"]) == (0, None, None)


def test_a_tenant_is_added_limited_disabled_and_enabled_and_all_of_it_is_logged(nightmill):
    said = [
        nightmill("tenants", "add", "acme", "--title", "Acme Inc", "--enqueued-tokens", 5_000_000).out,
        nightmill("tenants", "limit", "acme", "none").out,
        nightmill("tenants", "limit", "acme", "10").out,
        nightmill("tenants", "disable", "acme").out,
    ]
    listed = nightmill("tenants", "list").out.splitlines()
    said.append(nightmill("tenants", "enable", "acme").out)
    assert said == [
        "Tenant acme is added; it may have at most 5,000,000 tokens enqueued.\n",
        "Tenant acme is not limited; it may have any number of tokens enqueued.\n",
        "Tenant acme is limited; it may have at most 10 tokens enqueued.\n",
        "Tenant acme is disabled; it may have at most 10 tokens enqueued.\n",
        "Tenant acme is enabled; it may have at most 10 tokens enqueued.\n",
    ]
    assert re.fullmatch(r"acme +Acme Inc +0 +10 +- +- +- +\S+ \S+Z +\S+ \S+Z", listed[1])
    assert [(action, detail.partition("=")[0]) for action, _, _, detail in log(nightmill, "--tenant", "acme")] == [
        ("tenant.created", "title"),
        ("tenant.changed", "enqueued_tokens_limit"),
        ("tenant.changed", "enqueued_tokens_limit"),
        ("tenant.changed", "disabled_at"),
        ("tenant.changed", "disabled_at"),
    ]


@pytest.mark.parametrize(
    ("argv", "sentence", "code"),
    [
        (["tenants", "add", "a b"], "a b: it is no tenant's name: up to 63 of a-z, A-Z, 0-9, '.', '_', '-'.", 2),
        (["tenants", "add", "default"], "Someone else already did this: there is a tenant default.", Exit.CONFLICT),
        (["tenants", "disable", "nobody"], "There is no tenant named nobody. Add it: nightmill tenants add nobody", 2),
        (
            ["tenants", "limit", "default", "many"],
            "'many' is no number of tokens: write 5000000, or none. See: nightmill tenants limit --help",
            2,
        ),
        (
            ["keys", "create", "--tenant", "nobody"],
            "There is no tenant named nobody. Add it: nightmill tenants add nobody",
            2,
        ),
        (
            ["keys", "revoke", "key_x"],
            "There is no API key named key_x. List the keys there are: nightmill keys list",
            2,
        ),
        (
            ["keys", "rotate", "key_x"],
            "There is no API key named key_x. List the keys there are: nightmill keys list",
            2,
        ),
        (
            ["keys", "create", "--scope", "keys"],
            "scopes: keys needs the role admin or operator.",
            2,
        ),
        (
            ["grants", "add", "default", "/data"],
            "/data: it cannot be granted: write s3://BUCKET/FOLDER/ or file:///FOLDER/.",
            2,
        ),
        (
            ["grants", "remove", "default", "s3://b/x"],
            "There is no grant named default s3://b/x. See: nightmill grants list default",
            2,
        ),
        (
            ["models", "alias", "gpt", "fke"],
            "There is no model named fke. Did you mean fake? Known: fake, minilm, smollm2.",
            2,
        ),
        (
            ["models", "alias", "g p t", "fake"],
            "g p t: an alias is made of letters, digits and . _ - / : @ (at most 200).",
            2,
        ),
        (["models", "unalias", "gpt"], "There is no alias named gpt for all tenants. See: nightmill models aliases", 2),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(shared, argv, sentence, code):
    assert shared(*argv, code=None) == refused(sentence, code=code)


# ---- keys ---------------------------------------------------------------------------------------


def test_a_key_is_made_with_what_was_asked_and_is_listed_without_its_text(nightmill):
    nightmill("tenants", "add", "acme")
    options = ["--tenant", "acme", "--name", "nightly", "--project", "web", "--scope", "files.read", "--expires", "90d"]
    made = nightmill("keys", "create", *options, "--json").json
    listed = nightmill("keys", "list", "--json").json
    assert listed == [{name: value for name, value in made.items() if name != "key"}]
    assert (made["key"][:10], bool(KEY.fullmatch(made["key"]))) == (made["shown"], True)
    assert (made["tenant"], made["role"], made["scopes"], made["expires_at"] - made["created_at"]) == (
        "acme", "member", ["files.read"], 90 * 86_400,
    )  # fmt: skip
    assert nightmill("keys", "list", "--tenant", "default", "--json").json == []


@pytest.mark.parametrize(("role", "scopes"), [("member", MEMBER_SCOPES), ("admin", Scope), ("operator", Scope)])
def test_a_key_may_do_by_default_all_that_its_role_may(shared, role, scopes):
    assert shared("keys", "create", "--role", role, "--json").json["scopes"] == sorted(scopes)


def test_a_rotated_key_is_replaced_and_stays_good_for_the_overlap(nightmill):
    old = nightmill("keys", "create", "--name", "nightly", "--role", "admin", "--json").json
    new = nightmill("keys", "rotate", old["id"], "--json").json
    found = {key["id"]: key for key in nightmill("keys", "list", "--json").json}
    assert (new["replaces"], new["name"], new["role"], new["scopes"]) == (old["id"], "nightly", "admin", old["scopes"])
    assert 86_399 < found[old["id"]]["revoked_at"] - new["created_at"] < 86_460
    assert (new["revoked_at"], new["key"] != old["key"]) == (None, True)
    said = nightmill("keys", "rotate", new["id"], "--overlap", "0s").out
    assert re.search(rf"\n    {KEY.pattern}\n\nIt is not shown again.*\nKey {new['id']} ends at ", said)
    again = nightmill("keys", "rotate", new["id"], code=None)
    assert again == refused(f"Someone else already did this: key {new['id']} has ended already.", code=Exit.CONFLICT)


def test_a_revoked_key_is_shown_as_such(nightmill):
    made = nightmill("keys", "create", "--json").json
    assert (
        nightmill("keys", "revoke", made["id"]).out == f"Key {made['id']} ({made['shown']}…) of default is revoked.\n"
    )
    assert re.search(
        rf"^{made['id']} +default +{made['shown']}… .* revoked \S+ \S+Z$", nightmill("keys", "list").out, re.MULTILINE
    )


# ---- grants and aliases ---------------------------------------------------------------------------


def test_grants_are_given_changed_listed_and_taken_back(nightmill):
    nightmill("tenants", "add", "acme")
    said = [nightmill("grants", "add", "acme", "s3://b/in", *options).out for options in ([], ["--write"])]
    assert said == [
        "Tenant acme may read below s3://b/in/\n",
        "Tenant acme may read and write below s3://b/in/\n",
    ]
    nightmill("grants", "add", "default", "file:///data/shared/", "--json")
    assert [(g["tenant"], g["prefix"], g["write"]) for g in nightmill("grants", "list", "--json").json] == [
        ("acme", "s3://b/in/", True), ("default", "file:///data/shared/", False),
    ]  # fmt: skip
    assert len(nightmill("grants", "list", "acme").out.splitlines()) == 2
    nightmill("grants", "remove", "acme", "s3://b/in")
    assert nightmill("grants", "list", "acme", "--json").json == []


def test_an_alias_is_for_all_or_for_one_tenant(nightmill):
    nightmill("tenants", "add", "acme")
    said = nightmill("models", "alias", "gpt-4o-mini", "fake").out
    nightmill("models", "alias", "gpt-4o-mini", "smollm2", "--tenant", "acme")
    listed = nightmill("models", "aliases").out.splitlines()
    assert (said, [line.split() for line in listed[1:]]) == (
        "gpt-4o-mini means fake for all tenants.\n",
        [["gpt-4o-mini", "fake", "all", "tenants"], ["gpt-4o-mini", "smollm2", "acme"]],
    )
    nightmill("models", "unalias", "gpt-4o-mini")
    assert nightmill("models", "aliases", "--tenant", "acme", "--json").json == [
        {"alias": "gpt-4o-mini", "model": "smollm2", "tenant": "acme"}
    ]


def test_a_price_that_is_set_is_logged_with_who_and_what(nightmill):
    nightmill("models", "add", "mine", "--engine", "fake", "--price", "1/0.5/2")
    nightmill("prices", "set", "mine", "--free")
    assert [(action, subject, detail.partition(",")[0]) for action, _, subject, detail in log(nightmill)] == [
        ("price.set", "mine", "1/0.5/2 USD"), ("price.set", "mine", "0/0/0 USD"),
    ]  # fmt: skip
    assert re.search(r"Z +cli:\S+ +price.set +mine +0/0/0 USD, version ", nightmill("audit", "--limit", 1).out)


# ---- secrets ------------------------------------------------------------------------------------


def test_a_key_is_nowhere_but_where_it_was_shown(nightmill):
    shown = [nightmill("keys", "create").out]
    (made,) = nightmill("keys", "list", "--json").json
    shown.append(nightmill("keys", "rotate", made["id"], "--json").out)
    shown.append(nightmill("keys", "create", "--json").out)
    texts = [KEY.findall(out) for out in shown]
    assert [len(found) for found in texts] == [1, 1, 1]
    secret = [found[0][10:].encode() for found in texts]
    later = [
        nightmill("keys", "revoke", made["id"]),
        nightmill("keys", "revoke", made["id"], "--json"),
        nightmill("keys", "list"),
        nightmill("keys", "list", "--json"),
        nightmill("audit"),
        nightmill("audit", "--json"),
        nightmill("tenants", "list", "--json"),
        nightmill("doctor", code=None),
        nightmill("keys", "rotate", made["id"], code=None),
    ]
    files = [path for path in nightmill.home.rglob("*") if path.is_file()]
    said = [(done.out + done.err).encode() for done in later]
    assert {path.suffix for path in files} >= {".db", ".log"}
    assert [place for place in [*said, *(path.read_bytes() for path in files)] if any(s in place for s in secret)] == []
