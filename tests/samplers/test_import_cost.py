"""What may be imported when: `labelkit --help` must not pay for a provider library."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("litellm", "aiohttp", "xllamacpp", "httpx", "openai")

BUILD = """
from pathlib import Path
from labelkit.samplers import SamplerSettings
from labelkit.samplers.{module} import {name}
{name}(SamplerSettings.model_validate({settings!r}), Path())
"""


@pytest.mark.parametrize(
    "code",
    [
        "import labelkit.samplers",
        BUILD.format(module="litellm", name="LitellmSampler", settings={"model": "openai/gpt-4o"}),
        BUILD.format(module="direct", name="DirectSampler", settings={"model": "direct/m"}),
        BUILD.format(module="local", name="LocalSampler", settings={"model": "local/smollm2-135m"}),
        BUILD.format(
            module="recorded",
            name="RecordedSampler",
            settings={"recorded": {"file": "replies.jsonl", "text": "reply"}},
        ),
    ],
    ids=["registry", "litellm", "direct", "local", "recorded"],
)
def test_nothing_heavy_is_imported_before_the_first_call(code: str) -> None:
    probe = f"{code}\nimport sys\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stderr
