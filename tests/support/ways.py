"""One piece of work in every way that there is for it: at once, as a stream, as a line of a batch."""

from __future__ import annotations

import json

import openai

from tests.support.upped import until

BODIES = {
    "/v1/chat/completions": {"model": "fake", "messages": [{"role": "user", "content": "Name a river"}]},
    "/v1/completions": {"model": "fake", "prompt": "Once upon a"},
    "/v1/embeddings": {"model": "embedder", "input": ["a lamp", "two chairs"]},
}


def create(client, endpoint, **more):
    body = {**BODIES[endpoint], **more}
    kind = {"/v1/chat/completions": client.chat.completions, "/v1/completions": client.completions}
    return kind.get(endpoint, client.embeddings).create(**body)


def text_of(endpoint, answer):
    if endpoint == "/v1/embeddings":
        return [entry.embedding for entry in answer.data]
    choice = answer.choices[0]
    return choice.text if endpoint == "/v1/completions" else choice.message.content


def by_stream(client, endpoint, **more):
    """(what it said, its usage, its id)."""
    options = {"include_usage": True}
    chunks = list(create(client, endpoint, stream=True, stream_options=options, **more))
    said = [chunk.choices[0] for chunk in chunks if chunk.choices]
    pieces = [one.text if endpoint == "/v1/completions" else one.delta.content or "" for one in said]
    return "".join(pieces), chunks[-1].usage, chunks[0].id


def by_batch(client, endpoint, **more):
    """(the answer's body, the batch)."""
    line = {"custom_id": "a", "method": "POST", "url": endpoint, "body": {**BODIES[endpoint], **more}}
    file = client.files.create(file=("in.jsonl", json.dumps(line).encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h")
    ended = []
    until(lambda: ended.append(client.batches.retrieve(batch.id)) or ended[-1].status == "completed", "the batch")
    (answer,) = client.files.content(ended[-1].output_file_id).text.splitlines()
    return json.loads(answer)["response"]["body"], ended[-1]


def tokens(usage):
    return usage.prompt_tokens, getattr(usage, "completion_tokens", 0)


def check_every_way(up, client, tenant, endpoint, **changes):
    """The same tokens and the same charge, streamed, at once and by batch; a record for each request."""
    generates = endpoint != "/v1/embeddings"
    more = {"max_tokens": 12, "temperature": 0} if generates else {"encoding_format": "float"}
    more |= changes
    create(client, endpoint, **more)  # what the prefix cache can hold of it is there from now on, for all
    whole = create(client, endpoint, **more)
    body, _ = by_batch(client, endpoint, **more)
    kind = {"/v1/chat/completions": openai.types.chat.ChatCompletion, "/v1/completions": openai.types.Completion}
    line = kind.get(endpoint, openai.types.CreateEmbeddingResponse).model_validate(body)
    found = {
        "sync": (text_of(endpoint, whole), tokens(whole.usage)),
        "batch": (text_of(endpoint, line), tokens(line.usage)),
    }
    if generates:
        said, usage, name = by_stream(client, endpoint, **more)
        found["stream"] = said, tokens(usage)
        assert name != whole.id
    assert len({json.dumps(one) for one in found.values()}) == 1, found
    (job,) = up.home.store.jobs(tenant=tenant)
    requests = up.records(tenant)[1:]
    assert [outcome for _, outcome, _ in requests] == (["truncated"] * 2 if generates else ["ok"])
    charges = {up.charge("task", name) for name, _, _ in requests} | {up.charge("job", job.id)}
    assert len(charges) == 1
    assert charges != {0}
