"""jobs/submit.py: one job an idempotency key, whatever dies or comes twice, over ports in memory."""

import pytest

from infra.clocks import SeededIds
from jobs.errors import BadInput, BadSchema, KeyReused, NoPrice, NotFound
from jobs.model import InputFile, Model
from jobs.pools import Pool
from jobs.ports.intake import Examined, SubmitRequest
from jobs.submit import made_before, submit_to_pool
from tests.support.values import a_price, a_spec

pytestmark = pytest.mark.unit

POOLS = (Pool(name="batch", model="m", engine_args={"max_num_seqs": 8}), Pool(name="other", model="n"))
ASKED = SubmitRequest(input="/in", model="m", output="/out", tenant="acme", prompt="{{ x }}", idempotency_key="k")


class Office:
    """The ports that a submission needs. faster: another process's job is written just before ours."""

    def __init__(self, price=True):
        self.jobs, self.examined, self.frozen, self.priced, self.faster = {}, [], [], price, None

    def examine(self, request, model):
        self.examined.append(request)
        file = InputFile(uri="/in", size=1, stamp="s", rows=2, first_row=0, row_groups=(2,))
        return Examined(files=(file,), spec=a_spec(schema=request.schema), total_rows=2)

    def freeze(self, job, examined):
        self.frozen.append(job.id)

    def resolve(self, name):
        return Model(name=name, kind="chat", path="", engine="fake")

    def price(self, model):
        return a_price() if self.priced else None

    def now(self):
        return 100.0

    def job_of_key(self, tenant, key):
        return self.jobs.get((tenant, key))

    def create_jobs(self, wanted):
        return [self._create(job) for job, _ in wanted]

    def _create(self, job):
        if self.faster is not None:
            self.jobs[job.tenant, job.idempotency_key], self.faster = self.faster, None
        return self.jobs.setdefault((job.tenant, job.idempotency_key or job.id), job)


def submit(office, request=ASKED, **more):
    ports = {"intake": office, "models": office, "store": office, "ids": SeededIds(len(office.frozen))}
    return submit_to_pool(request, pools=POOLS, **ports, **more)


def test_a_request_becomes_a_job_of_the_pool_that_serves_its_model_with_that_pool_s_engine():
    office = Office()
    job = submit(office)
    assert (job.pool, job.tenant, job.total_rows, job.created_at) == ("batch", "acme", 2, 100.0)
    assert [request.engine_args for request in office.examined] == [{"max_num_seqs": 8}]
    assert office.frozen == [job.id]


def test_the_same_key_gives_the_same_job_and_its_input_is_not_looked_at_again():
    office = Office()
    job = submit(office)
    assert submit(office, ASKED.evolve(creator="somebody else")) is job
    assert (len(office.examined), office.frozen) == (1, [job.id])


def test_the_same_key_with_another_request_is_a_conflict_that_names_the_fields():
    office = Office()
    job = submit(office)
    with pytest.raises(KeyReused) as caught:
        submit(office, ASKED.evolve(prompt="{{ y }}", limit=1))
    assert (caught.value.job, caught.value.key, caught.value.fields) == (job.id, "k", "limit, prompt")
    assert list(office.jobs.values()) == [job]


def test_a_conflict_is_found_too_where_the_other_was_faster_by_a_moment():
    office = Office()
    other = submit(Office(), ASKED.evolve(limit=1))
    office.faster = other.evolve(id="job-other")
    with pytest.raises(KeyReused):
        submit(office)
    office = Office()
    office.faster = submit(Office()).evolve(id="job-other")
    assert submit(office).id == "job-other"


def test_another_tenant_s_key_is_another_key():
    office = Office()
    assert submit(office).id != submit(office, ASKED.evolve(tenant="globex", limit=1)).id


def test_without_a_key_every_request_is_a_job():
    office = Office()
    keyless = ASKED.evolve(idempotency_key=None)
    assert submit(office, keyless).id != submit(office, keyless).id
    assert made_before(keyless, office) is None


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"model": "gpt"}, NotFound),
        ({"pool": "nowhere"}, NotFound),
        ({"pool": "other"}, BadInput),
        ({"tenant": "../acme"}, BadInput),
    ],
)
def test_what_no_pool_can_run_is_refused_before_its_input_is_looked_at(change, error):
    office = Office()
    with pytest.raises(error):
        submit(office, ASKED.evolve(**change))
    assert (office.examined, office.jobs) == ([], {})


def test_a_model_without_a_price_is_refused():
    with pytest.raises(NoPrice):
        submit(Office(price=False))


def test_a_schema_is_shown_to_the_pool_s_engine_before_the_job_is_written():
    office, shown = Office(), []

    def can_follow(pool, schema):
        shown.append((pool.name, schema))
        raise BadSchema(reason="no")

    submit(office, ASKED.evolve(idempotency_key=None), can_follow=can_follow)
    with pytest.raises(BadSchema):
        submit(office, ASKED.evolve(schema="{}"), can_follow=can_follow)
    assert (shown, ("acme", "k") in office.jobs) == ([("batch", "{}")], False)
