"""What a request may name: what was granted to its tenant, and never what is the platform's own."""

import pytest

from jobs.access import check_access, check_places
from jobs.errors import NoGrant
from jobs.ports.intake import SubmitRequest
from jobs.tenancy import Grant

pytestmark = pytest.mark.unit

NEVER = ("db:///objects", "file:///srv/mill/objects", "/srv/mill", "file:///srv/mill", "s3://own/nm")
GRANTS = [Grant(tenant="acme", prefix="s3://b/in/"), Grant(tenant="acme", prefix="s3://b/out/", write=True)]


class Grants:
    """A tenancy store with the grants of one tenant."""

    def grants(self, tenant):
        return GRANTS if tenant == "acme" else []


def asked(**places):
    return SubmitRequest(model="m", tenant="acme", **{"input": "s3://b/in/x", "output": "s3://b/out", **places})


@pytest.mark.parametrize(
    "places",
    [
        {},
        {"input": "s3://b/in/*.parquet", "output": "s3://b/out/"},
        {"input": "s3://b/out/earlier/x.parquet", "output": "s3://b/out/deep/er"},
    ],
)
def test_what_is_granted_or_the_tenant_s_own_may_be_touched(places):
    assert check_access(asked(**places), store=Grants(), never=NEVER) is None


@pytest.mark.parametrize(
    ("places", "verb"),
    [
        ({"input": "s3://b/secret/x"}, "read"),
        ({"input": "s3://b/in"}, "read"),
        ({"input": "/etc/passwd"}, "read"),
        ({"input": "in/x"}, "read"),
        ({"input": "db:///objects/tenants/acme/files/x"}, "read"),
        ({"input": "s3://b/in/../secret/x"}, "read"),
        ({"input": "s3://b/in/%2e%2e/secret/x"}, "read"),
        ({"input": "s3://b/in%2f..%2fsecret"}, "read"),
        ({"input": "S3://b/in/x"}, "read"),
        ({"input": "s3://b/i*/x"}, "read"),
        ({"input": "s3://*/in/x"}, "read"),
        ({"output": "s3://b/in/"}, "write"),
        ({"output": "s3://b/output"}, "write"),
        ({"output": "/tmp"}, "write"),
    ],
)
def test_anything_else_is_refused_naming_the_way_to_a_grant(places, verb):
    with pytest.raises(NoGrant) as caught:
        check_access(asked(**places), store=Grants(), never=NEVER)
    (uri,) = places.values()
    assert caught.value.sentence == (
        f"Tenant acme was not granted to {verb} {uri}. An operator can: nightmill grants add acme PREFIX."
    )


def test_one_tenant_s_grant_opens_nothing_for_another():
    with pytest.raises(NoGrant):
        check_places("zoo", reads=["s3://b/in/x"], store=Grants(), never=NEVER)


class Wide(Grants):
    """Grants that reach round the platform's own folders, as an operator may set them."""

    def grants(self, tenant):
        return [Grant(tenant=tenant, prefix=prefix, write=True) for prefix in ("file:///srv/", "s3://own/")]


@pytest.mark.parametrize(
    ("uri", "open_to"),
    [
        ("file:///srv/in/x.parquet", True),
        ("file:///srv/in/*.parquet", True),
        ("file:///srv/milk/x.parquet", True),
        ("s3://own/other/x", True),
        ("file:///srv/mill/objects/tenants/zoo/files/x.jsonl", False),
        ("file:///srv/mill/nightmill.db", False),
        ("file:///srv/m%69ll/objects/tenants/zoo/files/x.jsonl", False),
        ("file:///srv/%6d%69ll/secret", False),
        ("file:///srv/", False),
        ("file:///srv", False),
        ("file:///srv/*/objects/tenants/zoo/files/*", False),
        ("file:///srv/mi?l/secret", False),
        ("file:///srv/[m]ill/secret", False),
        ("file:///srv/**/x.jsonl", False),
        ("s3://own/", False),
        ("s3://own/n*/tenants/zoo/files/x", False),
        ("s3://own/nm/tenants/zoo/files/x", False),
    ],
)
def test_the_platform_s_own_folders_are_nobody_s_however_wide_a_grant_is(uri, open_to):
    found = {}
    for way in ("reads", "writes"):
        try:
            check_places("acme", **{way: [uri]}, store=Wide(), never=NEVER, param="input")
            found[way] = True
        except NoGrant as error:
            found[way] = error.data["param"] != "input"
    assert found == {"reads": open_to, "writes": open_to}
