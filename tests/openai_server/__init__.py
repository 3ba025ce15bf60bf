"""A real local HTTP server that speaks the OpenAI protocol: the tests' provider and their oracle.

In-process: `async with OpenAIServer(Script(…)) as server: … server.url, server.calls`.
As a process of its own, so that whole runs can be killed: `python -m tests.openai_server --port 0
--script script.json --log calls.jsonl` prints its URL, e.g. `http://127.0.0.1:43121/v1`, as its
first line; `GET /stats` and `PUT /script` beside `/v1` read its counters and change its script.
"""

from tests.openai_server.script import Ask, Rule, Script
from tests.openai_server.server import LoggedCall, OpenAIServer

__all__ = ["Ask", "LoggedCall", "OpenAIServer", "Rule", "Script"]
