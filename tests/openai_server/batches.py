"""The files and batches endpoints of the fake server.

A batch is worked off when it is created, each row answered as the same call would be; it says so
after `Script.batch_polls` looks at it. Rows with the fault `hang` expire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web

from tests.openai_server.script import Script

Row = Callable[[dict[str, Any]], tuple[int, dict[str, Any]] | None]
"""The status and body that a call gets; None: none in time."""


class Batches:
    """What was uploaded and submitted. `held`: the stage that an answer is kept back at."""

    def __init__(self, row: Row) -> None:
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.held: str | None = None
        self._row = row
        self._polls: dict[str, int] = {}

    async def answer(self, request: web.BaseRequest, script: Script) -> web.Response | None:
        """The response to a call of these endpoints, None for all others."""
        parts = request.path.removeprefix("/v1/").split("/")
        if parts[0] not in ("files", "batches"):
            return None
        creates = parts[0] == "batches" and request.method == "POST"
        if creates and script.batch_hold == "before create":
            self.held = script.batch_hold
            await asyncio.sleep(600)
        stage, value = await self._perform(request, parts, script)
        if script.batch_hold == stage:
            self.held = stage
            await asyncio.sleep(600)
        if isinstance(value, bytes):
            return web.Response(body=value, content_type="application/octet-stream")
        status = 404 if value is None else 200
        body = orjson.dumps(value or {"error": {"message": "no such thing", "code": None}})
        return web.Response(body=body, status=status, content_type="application/json")

    async def _perform(
        self, request: web.BaseRequest, parts: list[str], script: Script
    ) -> tuple[str, Any]:
        if parts == ["files"]:
            form = await request.post()
            upload: Any = form["file"]
            return "upload", self._file(upload.file.read())
        if parts[0] == "files":
            return "content", self.files.get(parts[1])
        if len(parts) == 1 and request.method == "POST":
            return "create", self._create(orjson.loads(await request.read()), script)
        if len(parts) == 1:
            newest_first = list(self.batches.values())[::-1]
            return "list", {"object": "list", "data": newest_first, "has_more": False}
        return "retrieve", self._retrieve(parts[1], script)

    def _file(self, content: bytes) -> dict[str, Any]:
        name = f"file-{len(self.files) + 1}"
        self.files[name] = content
        return {
            "id": name,
            "object": "file",
            "bytes": len(content),
            "created_at": 1_700_000_000,
            "filename": "batch.jsonl",
            "purpose": "batch",
            "status": "processed",
        }

    def _create(self, asked: dict[str, Any], script: Script) -> dict[str, Any]:
        name = f"batch-{len(self.batches) + 1}"
        answered: list[bytes] = []
        refused: list[bytes] = []
        lines = self.files[asked["input_file_id"]].splitlines()
        # Results come in any order.
        for line in reversed(lines):
            row = orjson.loads(line)
            said = self._row(row["body"])
            told: dict[str, Any] = {
                "id": f"{name}-{row['custom_id']}",
                "custom_id": row["custom_id"],
            }
            if said is None:
                error = {"code": "batch_expired", "message": "not done within the window"}
                refused.append(orjson.dumps({**told, "response": None, "error": error}))
                continue
            status, body = said
            response = {"status_code": status, "request_id": "r", "body": body}
            full = orjson.dumps({**told, "response": response, "error": None})
            (answered if status == 200 else refused).append(full)
        batch = {
            "id": name,
            "object": "batch",
            "endpoint": asked["endpoint"],
            "input_file_id": asked["input_file_id"],
            "completion_window": asked["completion_window"],
            "metadata": asked.get("metadata"),
            "status": "in_progress",
            "created_at": 1_700_000_000,
            "request_counts": {"total": len(lines), "completed": 0, "failed": 0},
        }
        for field, rows in (("output_file_id", answered), ("error_file_id", refused)):
            batch[field] = self._file(b"\n".join(rows) + b"\n")["id"] if rows else None
        self.batches[name] = batch
        self._polls[name] = 0
        return batch

    def _retrieve(self, name: str, script: Script) -> dict[str, Any] | None:
        batch = self.batches.get(name)
        if batch is None:
            return None
        self._polls[name] += 1
        if self._polls[name] < script.batch_polls:
            return {**batch, "output_file_id": None, "error_file_id": None}
        batch["status"] = "completed"
        return batch
