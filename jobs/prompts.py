"""What can be said of a prompt whatever its form."""

from __future__ import annotations

from jobs.ports.engine import Message, Prompt, Several


def plain_text(prompt: Prompt) -> str:
    """All of it as one text, without the roles of its messages; token ids as numbers."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, Several):
        return "\n".join([plain_text(text) for text in prompt.inputs])
    return "\n".join([str(part) if isinstance(part, int) else "".join(part[1:]) for part in prompt])


def messages_of(prompt: Prompt) -> tuple[Message, ...]:
    """The messages of a chat; none of a text."""
    if isinstance(prompt, (str, Several)) or isinstance(prompt[0], int):
        return ()
    return prompt


def inputs_of(prompt: Prompt) -> tuple[Prompt, ...]:
    """Its inputs, each with answers of its own."""
    return prompt.inputs if isinstance(prompt, Several) else (prompt,)
