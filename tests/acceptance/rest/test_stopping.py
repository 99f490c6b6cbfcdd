"""A server that stops is not held up by what one of its threads still does."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.acceptance
PROGRAM = """
import asyncio, threading, time
from api.rest.threads import abandon, in_thread

def serve():
    async def ask():
        asyncio.ensure_future(in_thread(lambda: time.sleep(600)))
        await in_thread(lambda: None)
    asyncio.new_event_loop().run_until_complete(ask())

server = threading.Thread(target=serve, daemon=True)
server.start()
server.join()
abandon()
print("over", flush=True)
"""


def test_a_process_ends_while_a_thread_of_a_request_works_on():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "over\n"
