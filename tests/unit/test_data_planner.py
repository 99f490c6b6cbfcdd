"""Planning real files: which rows fall into which task, in which order, and what is staged."""

from __future__ import annotations

import random
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.data import segments
from infra.data.universe import save_rows
from jobs.plan import PlanPolicy
from jobs.ranges import rows_of
from tests.support.data import Kit

pytestmark = pytest.mark.unit

SMALL = PlanPolicy(segment_rows=100, min_rows=8, blind_rows=16, max_rows=64)


@pytest.fixture
def kit(tmp_path):
    made = Kit(tmp_path, policy=SMALL)
    yield made
    made.close()


def rows_in(kit, job, tasks):
    """The row numbers of each task, in the order in which it runs them."""
    side = kit.side()
    return [side.source.open(job, task).table.rows.to_pylist() for task in tasks]


def flat(lists):
    return [row for rows in lists for row in rows]


def shared(kit, rows=300, docs=6, chars=600, seed=1):
    """Rows that share long documents, mixed."""
    chance = random.Random(seed)
    texts = [f"document {n} " * (chars // 11) for n in range(docs)]
    picked = [texts[chance.randrange(docs)] for _ in range(rows)]
    return kit.parquet("in.parquet", {"doc": picked, "q": [f"question {n}" for n in range(rows)], "row": range(rows)})


ASK = (("system", "Answer."), ("user", "{{ doc }}\n{{ q }}"))


def test_rows_that_share_nothing_stay_where_they_are(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": [f"value {n}" for n in range(300)]}))
    tasks = kit.plan(job)
    assert {task.source.staged for task in tasks} == {None}
    assert flat(list(rows_of(task.ranges)) for task in tasks) == list(range(300))
    assert not list(kit.root.glob("home/**/staged/*"))


def test_rows_that_share_documents_are_ordered_and_staged(kit):
    job = kit.submit(shared(kit), messages=ASK)
    tasks = kit.plan(job)
    assert all(task.source.staged for task in tasks)
    found = rows_in(kit, job, tasks)
    assert sorted(flat(found)) == list(range(300))
    docs = pq.read_table(kit.root / "in.parquet")["doc"].to_pylist()
    for segment in range(3):
        mine = flat(rows for task, rows in zip(tasks, found, strict=True) if task.segment == segment)
        assert sorted(mine) == list(range(segment * 100, segment * 100 + 100))
        ordered = [docs[row] for row in mine]
        assert sum(a != b for a, b in pairwise(ordered)) == len(set(ordered)) - 1


def test_equal_rows_keep_their_order(kit):
    path = kit.parquet("in.parquet", {"doc": ["b" * 800, "a" * 800] * 40})
    found = rows_in(kit, job := kit.submit(path), kit.plan(job))
    assert flat(found) == [*range(1, 80, 2), *range(0, 80, 2)]


def test_cuts_fall_between_documents_where_they_can(kit):
    kit.policy = SMALL.evolve(segment_rows=1000, min_rows=16)
    chance = random.Random(3)
    docs = [f"{n:03d} " * 300 for n in range(20) for _ in range(15)]
    chance.shuffle(docs)
    job = kit.submit(kit.parquet("in.parquet", {"doc": docs}), messages=(("user", "{{ doc }}"),))
    tasks = kit.plan(job)
    assert {task.rows for task in tasks} == {15}


def test_documents_already_in_order_are_not_staged(kit):
    path = kit.parquet("in.parquet", {"doc": sorted(f"{n % 6} " * 400 for n in range(300))})
    assert {task.source.staged for task in kit.plan(kit.submit(path))} == {None}


def test_short_shared_values_are_not_worth_an_order(kit):
    path = kit.parquet("in.parquet", {"o": ["USA", "Japan"] * 150, "x": [f"v {n}" * 20 for n in range(300)]})
    job = kit.submit(path, messages=(("user", "{{ o }} {{ x }}"),))
    assert {task.source.staged for task in kit.plan(job)} == {None}


def test_only_a_leading_column_can_share(kit):
    job = kit.submit(shared(kit), messages=(("user", "{{ q }}\n{{ doc }}"),))
    assert {task.source.staged for task in kit.plan(job)} == {None}


def test_planning_again_makes_the_same_tasks_and_bytes(kit):
    job = kit.submit(shared(kit), messages=ASK)
    first = kit.plan(job, rows_per_s=2.0)
    staged = {path: path.read_bytes() for path in kit.root.glob("home/**/staged/*")}
    assert kit.plan(job, rows_per_s=2.0) == first
    assert {path: path.read_bytes() for path in kit.root.glob("home/**/staged/*")} == staged
    for path in staged:
        path.unlink()
    assert kit.plan(job, rows_per_s=2.0) == first
    assert {path: path.read_bytes() for path in kit.root.glob("home/**/staged/*")} == staged


def test_another_speed_after_a_crash_writes_beside_the_first_file(kit):
    kit.policy = SMALL.evolve(min_rows=64)
    job = kit.submit(shared(kit), messages=ASK)
    first = kit.plan(job, rows_per_s=0.3)
    second = kit.plan(job, rows_per_s=1.5)
    assert {t.source.staged for t in first}.isdisjoint({t.source.staged for t in second})
    assert sorted(flat(rows_in(kit, job, second))) == list(range(300))


def test_ids_count_through_a_segment(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": range(150)}), rows_per_task=40)
    assert [(t.id, t.rows) for t in kit.plan(job)] == [
        ("job1.s00000.00000", 40),
        ("job1.s00000.00001", 40),
        ("job1.s00000.00002", 20),
        ("job1.s00001.00000", 40),
        ("job1.s00001.00001", 10),
    ]


def test_a_sample_comes_first_and_is_not_repeated(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": range(250)}), sample=30, seed=7)
    tasks = kit.plan(job)
    sample = flat(list(rows_of(t.ranges)) for t in tasks if t.segment == 0)
    rest = flat(list(rows_of(t.ranges)) for t in tasks if t.segment > 0)
    assert len(sample) == 30
    assert sample == sorted(sample)
    assert max(sample) - min(sample) > 100
    assert sorted(sample + rest) == list(range(250))


def test_a_sample_as_large_as_the_job_is_the_job(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": range(20)}), sample=50)
    planned = kit.side().planner.plan(job, kit.files[job.id], 0)
    assert planned.last
    assert sum(task.rows for task in planned.tasks) == 20


def test_a_limit_takes_the_first_rows(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": range(250)}), limit=130)
    assert job.total_rows == 130
    assert flat(list(rows_of(t.ranges)) for t in kit.plan(job)) == list(range(130))


def test_a_selection_keeps_its_row_numbers(kit):
    path = kit.parquet("in.parquet", {"x": range(250)}, row_group_size=60)
    uri = str(kit.root / "select.parquet")
    wanted = [3, 5, 6, 7, *range(100, 240, 3)]
    assert save_rows(kit.objects, uri, reversed(wanted)) == len(wanted)
    job = kit.submit(path, select=uri)
    assert job.total_rows == len(wanted)
    tasks = kit.plan(job)
    assert flat(rows_in(kit, job, tasks)) == wanted
    assert kit.open(job, tasks[0]).prompts[1] == (("system", "Be short."), ("user", "Say 5"))


def test_copies_of_a_row_stay_neighbours_in_an_ordered_job(kit):
    vary = {"lang": ("de", "fr"), "tone": ("dry", "warm")}
    prompt = (("user", "{{ doc }} in {{ lang }}, {{ tone }}. {{ q }}"),)
    job = kit.submit(shared(kit, rows=40), messages=prompt, vary=vary)
    assert job.total_rows == 160
    tasks = kit.plan(job)
    assert all(task.source.staged for task in tasks)
    rows = flat(rows_in(kit, job, tasks))
    assert sorted(rows) == list(range(160))
    assert all(rows[at : at + 4] == list(range(rows[at], rows[at] + 4)) for at in range(0, 160, 4))


def test_a_varied_value_in_front_leaves_nothing_to_order(kit):
    job = kit.submit(shared(kit), messages=(("user", "{{ lang }} {{ doc }}"),), vary={"lang": ("de", "fr")})
    assert {task.source.staged for task in kit.plan(job)} == {None}


def test_an_ending_job_is_planned_without_reading(kit, monkeypatch):
    job = kit.submit(shared(kit), messages=ASK)
    monkeypatch.setattr(segments, "survey", None)
    tasks = kit.plan(job, ending=True)
    assert flat(list(rows_of(task.ranges)) for task in tasks) == list(range(300))


def test_jsonl_is_ordered_by_what_it_renders_to(kit):
    chance = random.Random(5)
    texts = [f"{n} " * 400 for n in range(5)]
    bodies = [
        {"messages": [{"role": "user", "content": f"{chance.choice(texts)} {n}"}], "max_tokens": 5 + n % 3}
        for n in range(90)
    ]
    job = kit.submit(kit.jsonl("in.jsonl", bodies))
    tasks = kit.plan(job)
    assert all(task.source.staged for task in tasks)
    opened = [kit.open(job, task) for task in tasks]
    prompts = [prompt[0][1] for rows in opened for prompt in rows.prompts]
    leads = [prompt[:3] for prompt in prompts]
    assert sum(a != b for a, b in pairwise(leads)) == 4
    assert sorted(prompts) == sorted(body["messages"][0]["content"] for body in bodies)
    for rows in opened:
        for index, prompt in enumerate(rows.prompts):
            assert f'"max_tokens":{5 + int(prompt[0][1].split()[-1]) % 3}' in rows.profile(index).sampling


def test_jsonl_that_shares_nothing_is_pointed_at(kit):
    job = kit.submit(kit.jsonl("in.jsonl", [{"messages": [{"role": "user", "content": f"{n}"}]} for n in range(150)]))
    tasks = kit.plan(job)
    assert {task.source.staged for task in tasks} == {None}
    ids = flat(kit.open(job, task).table.custom_ids.to_pylist() for task in tasks)
    assert ids == [f"r{n}" for n in range(150)]


def test_tokens_are_estimated_from_lengths(kit):
    chance = random.Random(2)
    texts = ["x" * chance.randrange(40, 4000) for _ in range(300)]
    job = kit.submit(kit.parquet("in.parquet", {"t": texts}), messages=(("system", "s" * 400), ("user", "{{ t }}!")))
    tasks = kit.plan(job)
    for task in tasks:
        rows = list(rows_of(task.ranges))
        real = sum((len(texts[row]) + 401) / 4 + 11 for row in rows)
        assert abs(task.est_input_tokens - real) < 0.02 * real
        assert task.est_output_tokens == 16 * task.rows


def test_values_that_decode_to_more_than_fits_are_ordered_in_blocks(kit):
    kit.policy = SMALL.evolve(segment_rows=100_000, order_bytes=1 << 20)
    docs = [f"{n % 7} " * 1000 for n in range(3000)]
    job = kit.submit(kit.parquet("in.parquet", {"doc": docs}))
    tasks = kit.plan(job)
    assert len({task.source.staged for task in tasks}) == 3
    assert sorted(flat(rows_in(kit, job, tasks))) == list(range(3000))


def test_a_block_larger_than_the_first_rows_promised_is_halved(kit):
    kit.policy = SMALL.evolve(segment_rows=100_000, order_bytes=1 << 19)
    docs = ["short"] * 600 + [f"{n % 7} " * 2000 for n in range(1400)]
    job = kit.submit(kit.parquet("in.parquet", {"doc": docs}))
    tasks = kit.plan(job)
    assert sorted(flat(rows_in(kit, job, tasks))) == list(range(2000))


def test_segments_cut_one_large_row_group(kit):
    kit.policy = SMALL.evolve(segment_rows=100_000, segment_bytes=100_000)
    chance = random.Random(1)
    path = kit.parquet("in.parquet", {"x": [chance.randbytes(500).hex() for _ in range(1000)]})
    tasks = kit.plan(kit.submit(path))
    assert max(task.segment for task in tasks) >= 9
    assert flat(list(rows_of(task.ranges)) for task in tasks) == list(range(1000))


def test_rows_that_cannot_be_read_are_not_staged(kit):
    path = shared(kit)
    data = bytearray((kit.root / "in.parquet").read_bytes())
    job = kit.submit(path, messages=ASK)
    at = len(data) // 3
    data[at : at + 64] = b"\xff" * 64
    (kit.root / "in.parquet").write_bytes(data)
    kit.files[job.id] = kit.resolve(path).files
    tasks = kit.plan(job)
    opened = [kit.open(job, task) for task in tasks]
    assert sorted(flat(rows.table.rows.to_pylist() for rows in opened)) == list(range(300))
    assert {f.code for rows in opened for f in rows.faults.values()} <= {"input_unreadable", "invalid_utf8"}


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.string()), pa.struct([("a", pa.string())]), pa.bool_(), pa.null(), pa.float64(), pa.date32()]
)
def test_columns_of_any_type_can_lead(kit, kind):
    some = {"list": ["a"], "struct": {"a": "b"}, "bool": True, "null": None, "double": 1.5, "date32[day]": 5}
    value = some[str(kind).split("<")[0]]
    path = kit.parquet("in.parquet", {"k": pa.array([value, None] * 20, kind), "doc": ["x" * 900, "y" * 900] * 20})
    job = kit.submit(path, messages=(("user", "{{ k }} {{ doc }}"),))
    assert sorted(flat(rows_in(kit, job, kit.plan(job)))) == list(range(40))


def test_the_cut_of_a_job_of_one_segment_is_not_written_down_but_one_that_was_counts(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": range(50)}))
    folder = kit.side().jobs.folder(job)
    whole = kit.side().planner.plan(job, kit.files[job.id], 0)
    before = kit.objects.facts(folder.layout)
    kit.objects.put_if_absent(folder.layout, b'{"version": 1, "stops": [20, 50]}')
    first = kit.side().planner.plan(job, kit.files[job.id], 0)
    rows = [sum(task.rows for task in planned.tasks) for planned in (whole, first)]
    assert (before, rows, whole.last, first.last) == (None, [50, 20], True, False)


def test_settings_that_change_while_a_job_is_planned_move_no_segment(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": range(250)}))
    first = kit.side().planner.plan(job, kit.files[job.id], 0)
    kit.policy = SMALL.evolve(segment_rows=30)
    planner = kit.side().planner
    rest = [planner.plan(job, kit.files[job.id], segment) for segment in (1, 2)]
    assert [planned.last for planned in (first, *rest)] == [False, False, True]
    rows = flat(list(rows_of(task.ranges)) for planned in (first, *rest) for task in planned.tasks)
    assert rows == list(range(250))
