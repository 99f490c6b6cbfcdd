"""What a client asks for is taken as the document has it."""

from typing import get_args

import pytest
from pydantic import BaseModel, ValidationError

from api.rest.app import ROUTERS
from api.rest.batches import BatchRequest
from api.rest.hook_schemas import EndpointRequest
from api.rest.job_schemas import JobRequest, PriorityRequest, RetryRequest
from api.rest.key_schemas import KeyAsk, RotateAsk
from api.rest.schemas import Ask

JOB = {"model": "fake", "input": "file:///a.parquet"}
BATCH = {"input_file_id": "file-a", "endpoint": "/v1/chat/completions", "completion_window": "24h"}


def kept(seconds):
    return {**BATCH, "output_expires_after": {"anchor": "created_at", "seconds": seconds}}


@pytest.mark.parametrize(
    ("kind", "asked", "at"),
    [
        (KeyAsk, {"requests_per_minute": True}, ("requests_per_minute",)),
        (KeyAsk, {"expires_s": "60"}, ("expires_s",)),
        (RotateAsk, {"overlap_s": True}, ("overlap_s",)),
        (JobRequest, {**JOB, "max_tokens": "48"}, ("max_tokens",)),
        (JobRequest, {**JOB, "temperature": False}, ("temperature",)),
        (JobRequest, {**JOB, "pause_on": True}, ("pause_on",)),
        (RetryRequest, {"seed": "1"}, ("seed",)),
        (BatchRequest, kept("3600"), ("output_expires_after", "seconds")),
    ],
)
def test_what_is_no_number_is_not_read_as_one(kind, asked, at):
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(asked)
    assert [(one["loc"], one["msg"]) for one in caught.value.errors()] == [(at, "Value error, this is no number")]


def test_numbers_are_taken_in_either_form_and_texts_where_a_text_may_stand():
    job = JobRequest.model_validate({**JOB, "max_tokens": 48.0, "temperature": 1, "pause_on": "never", "deadline": 60})
    assert job.model_dump(exclude_unset=True, exclude={*JOB}) == {
        "max_tokens": 48,
        "temperature": 1.0,
        "pause_on": "never",
        "deadline": 60.0,
    }


def test_every_body_is_an_ask():
    routes = [route for router in ROUTERS for route in router.routes]
    fields = [route.body_field for route in routes if getattr(route, "body_field", None) is not None]
    kinds = {kind for field in fields for kind in (field.field_info.annotation, *get_args(field.field_info.annotation))}
    bodies = {kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)}
    asked = {BatchRequest, EndpointRequest, JobRequest, KeyAsk, PriorityRequest, RetryRequest, RotateAsk}
    assert (bodies, {body for body in bodies if not issubclass(body, Ask)}) == (asked, set())
