"""The talk behind `nightmill chat`."""

import pytest

from api.cli.chat import Talk
from api.cli.talking import ChatFailed

pytestmark = pytest.mark.unit
USAGE = {"prompt_tokens": 3, "completion_tokens": 2}


def chunk(text=None, reason=None, usage=None):
    choices = [] if usage else [{"delta": {"content": text}, "finish_reason": reason}]
    return {"id": "chatcmpl-1", "choices": choices, "usage": usage}


class Scripted:
    """A line whose answers are given. closed: how many answers were ended."""

    def __init__(self, *answers):
        self.answers, self.asked, self.closed = list(answers), [], 0

    def events(self, model, messages, sampling):
        self.asked.append([message["content"] for message in messages])
        try:
            for event in self.answers.pop(0):
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            self.closed += 1


def a_talk(line):
    return Talk(line=line, model="m", sampling={}, cost=lambda model, usage: f"{usage['completion_tokens']} X")


def test_an_answer_is_said_as_it_comes_and_stays_part_of_the_talk():
    line, said = Scripted([chunk("Ni"), chunk("le."), chunk(reason="stop"), chunk(usage=USAGE)], []), []
    talk = a_talk(line)
    found = talk.ask("A river?", said.append)
    talk.ask("Another?", said.append)
    assert (said, found["finish_reason"], found["cost"]) == (["Ni", "le."], "stop", "2 X")
    assert line.asked == [["A river?"], ["A river?", "Nile.", "Another?"]]


def test_ctrl_c_ends_the_answer_and_not_the_talk():
    line = Scripted([chunk("Ni"), KeyboardInterrupt(), chunk("le.")], [chunk("Yes.")])
    talk = a_talk(line)
    stopped, after = (talk.ask(text, lambda _: None) for text in ("A river?", "Go on?"))
    assert (stopped["answer"], stopped["finish_reason"], stopped["usage"]) == ("Ni", "stopped", None)
    assert (after["answer"], line.closed) == ("Yes.", 2)


def test_a_question_that_failed_is_no_part_of_the_talk():
    talk = a_talk(Scripted([ChatFailed(reason="It broke off.")]))
    with pytest.raises(ChatFailed, match="It broke off"):
        talk.ask("A river?", lambda _: None)
    assert talk.messages == []
