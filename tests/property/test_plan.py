"""Planning, as pure functions and over real files: every row in exactly one task, and no limit passed."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.data.universe import save_rows
from jobs.plan import PlanPolicy, Sizes, cut, even_stops, running, sample_positions, segment_stops, split, target_rows
from jobs.ranges import Range, count, rows_of
from tests.support.data import Kit

pytestmark = pytest.mark.property

POLICY = PlanPolicy(max_tokens=1000, max_bytes=4000)
ROWS = st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 5000)), min_size=1, max_size=120)


@given(rows=ROWS, target=st.integers(1, 60), most=st.integers(1, 80), exact=st.booleans(), data=st.data())
def test_cuts_cover_all_rows_and_keep_the_limits(rows, target, most, exact, data):
    target = min(target, most)
    places = st.lists(st.integers(1, len(rows)), unique=True).map(sorted)
    borders = data.draw(st.lists(places, max_size=2))
    sizes = Sizes(tokens=running(t for t, _ in rows), bytes=running(b for _, b in rows))
    stops = cut(sizes, target=target, most=most, policy=POLICY, borders=borders, exact=exact)
    assert stops[-1] == len(rows)
    for start, stop in pairwise([0, *stops]):
        assert start < stop
        assert stop - start <= most
        if stop - start > 1:
            assert sizes.tokens[stop] - sizes.tokens[start] <= POLICY.max_tokens
            assert sizes.bytes[stop] - sizes.bytes[start] <= POLICY.max_bytes
        assert stop - start <= (target if exact else target * 1.2 + 1)
    assert stops == cut(sizes, target=target, most=most, policy=POLICY, borders=borders, exact=exact)


@given(rows=st.integers(1, 5000), target=st.integers(1, 400))
def test_even_rows_make_even_tasks(rows, target):
    free = Sizes(tokens=[0] * (rows + 1), bytes=[0] * (rows + 1))
    stops = cut(free, target=target, most=10_000, policy=POLICY)
    sizes = [stop - start for start, stop in pairwise([0, *stops])]
    if rows >= 10 * target >= 100:
        assert max(sizes) - min(sizes) <= 1


@given(borders=st.lists(st.integers(1, 999), min_size=1, unique=True).map(sorted))
def test_a_cut_moves_to_a_border_within_the_slack(borders):
    free = Sizes(tokens=[0] * 1001, bytes=[0] * 1001)
    stops = cut(free, target=100, most=200, policy=POLICY, borders=[borders])
    for start, stop in pairwise([0, *stops]):
        near = [b for b in borders if start + 80 <= b <= start + 120]
        if near and start + 120 < 1000:
            assert stop in near


@given(
    kind=st.sampled_from(["chat", "embedding"]),
    total=st.integers(1, 10**9),
    speed=st.one_of(st.none(), st.floats(0.001, 1e6)),
    asked=st.one_of(st.none(), st.integers(1, 10**6)),
)
def test_targets_are_within_their_bounds(kind, total, speed, asked):
    policy = PlanPolicy()
    target = target_rows(policy, kind, total_rows=total, rows_per_s=speed, rows_per_task=asked)
    assert 1 <= target <= policy.max_rows_embedding
    if asked is not None:
        assert target == min(asked, policy.max_rows_embedding)
        return
    assert target <= policy.most_rows(kind)
    assert target <= max(32, total // 100)
    assert speed is not None or target <= 256
    assert speed is None or target <= max(1, 30 * speed)


GROUPS = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 10**6)), max_size=20)


@given(groups=GROUPS, copies=st.integers(1, 4), limit=st.one_of(st.none(), st.integers(1, 1000)))
def test_segments_cover_the_job_and_keep_their_size(groups, copies, limit):
    total = sum(rows for rows, _ in groups) * copies
    rows = total if limit is None else min(limit, total)
    if not rows:
        return
    policy = PlanPolicy(segment_rows=100, segment_bytes=200_000)
    stops = segment_stops(groups, copies=copies, rows=rows, policy=policy)
    assert stops[-1] == rows
    assert all(a < b for a, b in pairwise([0, *stops]))
    assert all(b - a <= max(100, copies) for a, b in pairwise([0, *stops]))
    per_row = [size / n for n, size in groups for _ in range(n)]
    for start, stop in pairwise([0, *stops]):
        inside = per_row[start // copies : -(-stop // copies)]
        assert len(inside) == 1 or sum(inside) * copies <= 200_000 + copies * len(groups)


@given(rows=st.integers(1, 10**5), row_bytes=st.integers(0, 10**7))
def test_scattered_rows_have_segments_too(rows, row_bytes):
    policy = PlanPolicy(segment_rows=1000)
    stops = even_stops(rows, row_bytes=row_bytes, policy=policy)
    assert stops[-1] == rows
    assert all(0 < b - a <= 1000 for a, b in pairwise([0, *stops]))


@given(total=st.integers(1, 10**6), size=st.integers(1, 300), seed=st.integers(0, 2**32))
def test_a_sample_is_distinct_ascending_and_repeatable(total, size, seed):
    found = sample_positions(total, size, seed)
    assert len(found) == min(size, total)
    assert all(a < b for a, b in pairwise(found))
    assert found[0] >= 0
    assert found[-1] < total
    assert found == sample_positions(total, size, seed)


RANGES = st.lists(st.integers(0, 200), unique=True, min_size=2, max_size=20).map(
    lambda cuts: tuple(Range(a, b) for a, b in zip(sorted(cuts)[::2], sorted(cuts)[1::2], strict=False))
)


@given(ranges=RANGES, data=st.data())
def test_split_ranges_hold_the_same_rows_in_the_same_order(ranges, data):
    rows = count(ranges)
    inner = data.draw(st.lists(st.integers(1, rows), unique=True).map(sorted))
    stops = [*(stop for stop in inner if stop < rows), rows]
    pieces = split(ranges, stops)
    assert [count(piece) for piece in pieces] == [b - a for a, b in pairwise([0, *stops])]
    assert [row for piece in pieces for row in rows_of(piece)] == list(rows_of(ranges))


# ---- over real files ----------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_row_of_a_job_is_in_exactly_one_task(data):
    draw = data.draw
    sizes = draw(st.lists(st.integers(0, 90), min_size=1, max_size=3).filter(any))
    docs = draw(st.integers(1, 4))
    vary = draw(st.sampled_from([{}, {"lang": ("a", "b", "c")}]))
    copies = 3 if vary else 1
    total = sum(sizes) * copies
    spec = {
        "vary": vary,
        "sample": draw(st.sampled_from([0, 0, 7, 10_000])),
        "seed": draw(st.integers(0, 99)),
        "limit": draw(st.one_of(st.none(), st.integers(1, total))),
        "rows_per_task": draw(st.sampled_from([None, 5])),
    }
    selected = draw(st.one_of(st.none(), st.sets(st.integers(0, total - 1), min_size=1)))
    with tempfile.TemporaryDirectory() as folder:
        kit = Kit(Path(folder), policy=PlanPolicy(segment_rows=60, min_rows=4, max_rows=25, segment_bytes=60_000))
        at = 0
        for number, size in enumerate(sizes):
            rows = range(at, at + size)
            doc = [f"{row * 7 % docs} " * 200 for row in rows]
            table = pa.table({"doc": pa.array(doc, pa.string()), "n": pa.array(rows, pa.int64())})
            kit.parquet(f"in/{number}.parquet", table, row_group_size=40)
            at += size
        if selected is not None:
            spec["select"] = str(kit.root / "select.parquet")
            save_rows(kit.objects, spec["select"], selected)
        job = kit.submit(f"{kit.root}/in", messages=(("user", "{{ doc }}{{ n }}"),), **spec)
        universe = (sorted(selected) if selected is not None else list(range(total)))[: spec["limit"]]
        assert job.total_rows == len(universe)
        tasks = kit.plan(job)
        side = kit.side()
        opened = [side.source.open(job, task) for task in tasks]
        kit.close()
    rows = [row for one in opened for row in one.table.rows.to_pylist()]
    assert sorted(rows) == universe
    assert [task.rows for task in tasks] == [one.size for one in opened]
    assert len({task.id for task in tasks}) == len(tasks)
    for one in opened:
        for row, prompt in zip(one.table.rows.to_pylist(), one.prompts, strict=True):
            assert prompt[0][1].endswith(f" {row // copies}")
    if spec["sample"]:
        sample = [
            row for t, one in zip(tasks, opened, strict=True) if t.segment == 0 for row in one.table.rows.to_pylist()
        ]
        assert len(sample) == min(spec["sample"], len(universe))
