"""From messages to token ids, off the engine's critical path: rendered by vLLM, tokenised in batches.

vLLM's own way encodes row by row; in batches, with shared segments remembered, the same ids cost a third or less. The
ids must be the same: the quick way is compared with vLLM's at start and on the first rows, and dropped if it differs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import orjson

from infra.engines.segment_memo import SegmentMemo
from jobs.ports.engine import Message, ModelKind, Prompt, Several
from jobs.prompts import messages_of

VERIFIED_ROWS = 64
_PROBES: tuple[tuple[Message, ...], ...] = (
    (("user", "Hello"),),
    (("system", "  Two  spaces, a tab\tand an end \n"), ("user", "\n\nÄpfel, 東京, 🙂 and 1234567.89")),
    (("system", "Be brief."), ("user", "<|im_end|> </s> [INST] <s>"), ("assistant", " ok"), ("user", "Again!")),
)
_log = logging.getLogger("nightmill.engine.prompts")

Outcome = list[int] | Exception
"""Token ids of a row, or why it has none."""
Encode = Callable[[Sequence[str]], Sequence[Sequence[int]]]


class Template(Protocol):
    """How the rows of a profile are shown to the model. chat: by its chat template, with these arguments."""

    chat: bool
    kwargs: dict[str, Any]


class Prompts:
    """Renders and encodes rows with one vLLM renderer. Used from one thread.

    kind: of the model. A chat model encodes plain texts too, in the way of completions.
    """

    def __init__(self, renderer: Any, kind: ModelKind) -> None:
        from vllm.renderers.params import ChatParams  # noqa: PLC0415 - heavy, engine process only

        self._renderer = renderer
        self._chat_params = ChatParams
        self._chat = Encoder(renderer, chat=True) if kind == "chat" else None
        self._texts = Encoder(renderer, chat=False) if kind != "chat" else None
        if self._chat is not None:
            rendered = [self._render(probe, {}) for probe in _PROBES]
            self._chat.verify([text for text in rendered if isinstance(text, str)])

    def token_ids(self, prompts: Sequence[Prompt], plan: Template) -> list[Outcome]:
        """The ids of each, or the exception that its template or text raised."""
        texts = [prompt if isinstance(prompt, str) else self._ready(prompt, plan) for prompt in prompts]
        plain = [text for text in texts if isinstance(text, str)]
        encoded = iter(self._encoder(plan.chat).encode(plain) if plain else ())
        return [next(encoded) if isinstance(text, str) else text for text in texts]

    def _encoder(self, chat: bool) -> Encoder:  # noqa: FBT001 - which of the two
        if chat and self._chat is not None:
            return self._chat
        if self._texts is None:
            self._texts = Encoder(self._renderer, chat=False)
        return self._texts

    def _ready(self, prompt: Prompt, plan: Template) -> str | Outcome:
        if messages := messages_of(prompt):
            return self._render(messages, plan.kwargs)
        return [] if isinstance(prompt, Several) else [part for part in prompt if isinstance(part, int)]

    def _render(self, prompt: Sequence[Message], template_kwargs: Mapping[str, Any]) -> str | Outcome:
        messages = [shown(message) for message in prompt]
        kwargs = {"add_generation_prompt": True, "continue_final_message": False, **template_kwargs, "tokenize": False}
        try:
            _, rendered = self._renderer.render_messages(messages, self._chat_params(chat_template_kwargs=kwargs))
        except Exception as error:  # noqa: BLE001 - a template may raise anything, and it is this row's fault alone
            return error
        text: str | None = rendered.get("prompt")
        return text if text is not None else list(rendered["prompt_token_ids"])


def shown(message: Message) -> dict[str, Any]:
    """As vLLM and chat templates know it. An assistant that only calls tools says nothing."""
    more = orjson.loads(message[2]) if len(message) > 2 else {}
    return {"role": message[0], "content": message[1] or (None if "tool_calls" in more else ""), **more}


class Encoder:
    """Texts to token ids: as vLLM would, and quickly where that is found to be the same."""

    def __init__(self, renderer: Any, *, chat: bool) -> None:
        from vllm.renderers.params import TokenizeParams  # noqa: PLC0415 - heavy, engine process only

        self._renderer = renderer
        defaults = renderer.default_chat_tok_params if chat else renderer.default_cmpl_tok_params
        self._lower = bool(defaults.do_lower_case)
        self._params = TokenizeParams(
            max_total_tokens=None,  # the length is ours to check: a long row is an error row, with its count
            do_lower_case=defaults.do_lower_case,
            add_special_tokens=defaults.add_special_tokens,
        )
        self._quick = self._quick_encoder(defaults.add_special_tokens, chat=chat)
        self._to_verify = VERIFIED_ROWS
        if not chat:
            self.verify([probe[-1][1] for probe in _PROBES])

    def encode(self, texts: Sequence[str]) -> list[Outcome]:
        if self._quick is None:
            return [self._slow(text) for text in texts]
        ids: list[Outcome] = [list(row) for row in self._quick([t.lower() for t in texts] if self._lower else texts)]
        checked = texts[: self._to_verify]
        self._to_verify -= len(checked)
        if any(self._slow(text) != row for text, row in zip(checked, ids, strict=False)):
            _log.warning("quick_tokens_differ: vLLM's own way from here on")
            self._quick = None
            return self.encode(texts)
        return ids

    def verify(self, texts: Sequence[str]) -> None:
        """Compare both ways on these, and then on the first rows that come."""
        if self._quick is None:
            return
        for _ in range(3):  # the memo remembers on the second time and answers on the third
            self._to_verify = VERIFIED_ROWS
            self.encode(texts)
        self._to_verify = VERIFIED_ROWS

    def _slow(self, text: str) -> Outcome:
        """vLLM's own way."""
        try:
            (prompt,) = self._renderer.tokenize_prompts([{"prompt": text}], self._params)
        except Exception as error:  # noqa: BLE001 - this row's fault alone
            return error
        return list(prompt["prompt_token_ids"])

    def _quick_encoder(self, add_special_tokens: bool, *, chat: bool) -> Encode | None:  # noqa: FBT001 - vLLM's word
        tokenizer = self._renderer.get_tokenizer()
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:  # not a fast tokenizer of Hugging Face
            return None

        def encode(texts: Sequence[str]) -> list[list[int]]:
            return [e.ids for e in backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)]

        specials = cut_tokens(backend)
        return SegmentMemo(encode, specials).encode if chat and specials else encode


def cut_tokens(backend: Any) -> dict[str, int]:
    """The special tokens of a `tokenizers.Tokenizer` that a text may be cut at: those that touch no neighbour."""
    return {
        token.content: number
        for number, token in backend.get_added_tokens_decoder().items()
        if token.special and not (token.normalized or token.lstrip or token.rstrip or token.single_word)
    }
