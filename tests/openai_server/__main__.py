"""The fake server as a process: prints its URL, serves until it is ended."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from tests.openai_server import OpenAIServer, Script


async def serve(port: int, script: Script, log: Path | None) -> None:
    async with OpenAIServer(script, port=port, log=log, keep=False) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path, help="a Script as JSON")
    parser.add_argument("--log", type=Path, help="a JSONL file, a line a call and one an answer")
    options = parser.parse_args()
    told = options.script.read_bytes() if options.script else b"{}"
    asyncio.run(serve(options.port, Script.model_validate_json(told), options.log))


if __name__ == "__main__":
    main()
