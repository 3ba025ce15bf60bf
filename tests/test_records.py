"""Records: what a copy keeps, and what the ledger keeps of a completion."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from labelkit.records import Completion, Request, ToolCall, Usage


def test_a_changed_copy_of_a_request_has_a_digest_of_its_own() -> None:
    request = Request(model="m", messages=({"role": "user", "content": "a"},))
    digest = request.digest
    changed = request.model_copy(update={"messages": ({"role": "user", "content": "b"},)})
    assert changed.digest == Request(model="m", messages=changed.messages).digest != digest
    assert request.digest == digest


TEXT = st.none() | st.text(st.characters(exclude_categories=["Cs"]))
COUNT = st.none() | st.integers(0, 10**6)
CALL = st.builds(ToolCall, name=st.text(max_size=5), arguments=st.text(max_size=5), id=TEXT)


@given(
    st.builds(
        Completion,
        text=st.text(),
        reasoning=TEXT,
        tool_calls=st.lists(CALL, max_size=2).map(tuple),
        finish_reason=TEXT,
        usage=st.builds(Usage, input_tokens=COUNT, reasoning_tokens=COUNT),
        cost_usd=st.none() | st.floats(0, 1e6),
        model_served=TEXT,
        response_id=TEXT,
        logprobs=st.none() | st.dictionaries(st.text(max_size=3), st.floats(-9, 0)),
    )
)
def test_a_completion_is_read_back_as_it_was(completion: Completion) -> None:
    fields: Any = completion.as_json()
    assert Completion.model_validate(fields) == completion
    assert None not in fields.values()
