"""infra/engines/vllm_streams.Streams: over collectors as vLLM has them, without vLLM."""

import asyncio
from types import SimpleNamespace

import pytest

from infra.engines.vllm_outputs import Deltas
from infra.engines.vllm_streams import Streams

pytestmark = pytest.mark.unit


class Collector:
    """What came and was not taken yet."""

    def __init__(self, *outputs):
        self.outputs = [*outputs]

    def get_nowait(self):
        output = self.outputs.pop(0) if self.outputs else None
        if isinstance(output, Exception):
            raise output
        return output


def output(text, *, reason=None):
    completion = SimpleNamespace(text=text, token_ids=[1] * len(text), finish_reason=reason, logprobs=None)
    return SimpleNamespace(
        outputs=[completion], prompt_token_ids=[1, 2, 3], num_cached_tokens=1, finished=reason is not None
    )


def opened(streams, *collectors):
    """A task for each, numbered as its row; they wait."""
    return [asyncio.create_task(streams.whole(one, Deltas(row, 0, None))) for row, one in enumerate(collectors)]


def test_one_look_tells_of_all_that_a_step_brought_and_wakes_those_that_ended():
    async def story():
        told, a, b, c = [], Collector(), Collector(), Collector()
        streams = Streams(told.append)
        tasks = opened(streams, a, b, c)
        await asyncio.sleep(0)
        a.outputs, b.outputs = [output("x")], [output("yy", reason="stop")]
        streams.look()
        assert [[(piece.id, piece.text, piece.output_tokens) for piece in pieces] for pieces in told] == [
            [(0, "x", 1), (1, "yy", 2)]
        ]
        whole = await tasks[1]
        assert (whole.text, whole.finish_reason, whole.output_tokens, whole.cached_tokens) == ("yy", "stop", 2, 1)
        assert not tasks[0].done()
        a.outputs, c.outputs = [output("", reason="length")], [output("z", reason="stop")]
        streams.look()
        assert (await tasks[0]).text == "x"
        assert (await tasks[2]).text == "z"
        streams.look()
        assert (len(told), streams._open) == (2, {})

    asyncio.run(story())


def test_an_answer_that_ended_before_it_was_waited_for_is_told():
    async def story():
        told = []
        whole = await Streams(told.append).whole(Collector(output("x", reason="stop")), Deltas(7, 0, None))
        assert (whole.text, told[0][0].id) == ("x", 7)

    asyncio.run(story())


@pytest.mark.parametrize("fault", [ValueError("too long"), SimpleNamespace(outputs=[])], ids=["told", "unreadable"])
def test_what_goes_wrong_with_one_answer_is_its_own(fault):
    async def story():
        told, bad, good = [], Collector(), Collector()
        streams = Streams(told.append)
        tasks = opened(streams, bad, good)
        await asyncio.sleep(0)
        bad.outputs, good.outputs = [fault], [output("x", reason="stop")]
        streams.look()
        with pytest.raises((ValueError, IndexError)):
            await tasks[0]
        assert (await tasks[1]).text == "x"
        assert streams._open == {}

    asyncio.run(story())
