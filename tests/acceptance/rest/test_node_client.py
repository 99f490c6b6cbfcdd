"""OpenAI's client for Node: chats, streams, tools, embeddings, its errors and its retries."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.api import talking, until
from tests.support.front import SmallFront
from tests.support.prepared import missing

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).parent / "node"


@pytest.fixture(scope="module")
def modules():
    """The folder with the client, which npm fills once for each version that is asked for."""
    wanted = (HERE / "package.json").read_bytes()
    cache = os.environ.get("NIGHTMILL_TEST_CACHE")
    folder = (Path(cache) if cache else ROOT / ".nightmill") / "node"
    if (folder / "package.json").is_file() and (folder / "package.json").read_bytes() == wanted:
        return folder
    if shutil.which("npm") is None or shutil.which("node") is None:
        missing("node and npm are not installed")
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / "installing"
    beside.mkdir(exist_ok=True)
    (beside / "package.json").write_bytes(wanted)
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(beside)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        missing(f"npm installed nothing: {done.stderr.strip().splitlines()[-1:]}")
    shutil.rmtree(folder / "node_modules", ignore_errors=True)
    (beside / "node_modules").rename(folder / "node_modules")
    (folder / "package.json").write_bytes(wanted)
    return folder


def test_the_node_client_works_unchanged(tmp_path, modules):
    front = SmallFront()
    with talking(tmp_path, front=front, generation_timeout_s=1.0) as town:
        env = {**os.environ, "BASE_URL": f"{town.url}/v1", "API_KEY": town.key(), "MODULES": str(modules)}
        command = ["node", str(HERE / "talk.mjs")]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=env, timeout=120)
        assert done.returncode == 0, done.stderr
        until(lambda: front.ended.get(front.left[-1]), "the end of what it left")
    seen = json.loads(done.stdout)
    assert seen.pop("streamed") == seen.pop("whole")
    assert json.loads(seen["call"].pop("arguments")) == {"city": "Lima"}
    assert seen == {
        "usage": 12,
        "streamedUsage": 12,
        "call": {"name": "look_up"},
        "reason": "tool_calls",
        "sizes": [64, 64],
        "sameVectors": True,
        "busy": {"name": "RateLimitError", "status": 429, "code": "overloaded"},
        "unknown": {"name": "NotFoundError", "status": 404, "code": "model_not_found"},
        "bad": {"name": "BadRequestError", "status": 400, "code": "invalid_request"},
        "stranger": {"name": "AuthenticationError", "status": 401, "code": "invalid_api_key"},
        "broken": {"name": "APIError", "status": None, "code": "interrupted"},
        "again": 4,
        "left": 12,
    }
