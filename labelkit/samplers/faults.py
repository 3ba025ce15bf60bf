"""Provider failures in labelkit's classes, in words free of secrets.

The one table from what a server said to what a run does about it; transports bring the facts here
and judge nothing themselves. Nothing here waits, retries or logs.
"""

from __future__ import annotations

import base64
import math
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import SplitResult, quote, unquote, urlsplit

from labelkit.codec import strict_loads
from labelkit.errors import FailureKind, ProviderError

MAX_MESSAGE = 500
_READ_AT_MOST = 20_000
_SHORTEST_SECRET = 6

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)
_KEY_LIKE = re.compile(r"\b(?:sk|pk|hf|gsk|xai|AIza)[-_]?[A-Za-z0-9*_-]{16,}")
_USERINFO = re.compile(r"(?<=://)[^/\s@]+@")
# C0 and C1 controls, and the marks that reorder text on a terminal.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")

_FILTERED = re.compile(r"content[_ ]?(?:filter|polic|management)|ResponsibleAI|moderation", re.I)
_NO_MONEY = re.compile(
    r"insufficient[_ ](?:quota|balance|funds|credit)|credit balance is too low|billing_hard_limit",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(
    r"(?:invalid|incorrect|not valid)[^.]{0,20}api[_ ]?key"
    r"|api[_ ]?key[^.]{0,9}(?:invalid|incorrect|not valid)",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model_not_found|invalid model|unknown model|model\W.{0,80}does not exist", re.IGNORECASE
)

_HINTS = {
    401: "set the provider's API key in the environment",
    402: "top up the account, then run the same command again",
    403: "the key may not use this model: check its rights",
    404: "check model and api_base: the server does not know them",
}


class Secrets:
    """The strings that must never leave the process, and how they are taken out of a text.

    They come from the environment (variables named like keys), from header values and from the
    userinfo of endpoint URLs. Read once: build one for each sampler.
    """

    def __init__(self, headers: Mapping[str, str], urls: tuple[str, ...]) -> None:
        found = {value for name, value in os.environ.items() if _SECRET_NAME.search(name)}
        found.update(word for value in headers.values() for word in (value, value.split(" ")[-1]))
        for url in urls:
            userinfo = basic_auth(url)
            if userinfo is not None:
                user, password = userinfo
                found.update((password, quote(password, safe=""), f"{user}:{password}"))
                found.add(basic_token(user, password))
        usable = (secret.strip() for secret in found)
        # Longest first, so that no secret survives as the rest of a shorter one.
        self._found = sorted((s for s in usable if len(s) >= _SHORTEST_SECRET), key=len)[::-1]

    def hide(self, text: str) -> str:
        """`text` as it is but for secrets."""
        for secret in self._found:
            text = text.replace(secret, "[secret]")
        return text

    def scrub(self, text: str) -> str:
        """`text` without secrets and control characters, at most 500 characters."""
        text = self.hide(text[:_READ_AT_MOST])
        text = _BEARER.sub(r"\1 [secret]", text)
        text = _USERINFO.sub("[secret]@", text)
        text = _KEY_LIKE.sub("[secret]", text)
        text = _CONTROLS.sub(" ", text).strip()
        return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"

    def error(
        self,
        kind: FailureKind,
        message: str,
        *,
        error_type: str,
        status_code: int | None = None,
        retry_after_s: float | None = None,
        hint: str | None = None,
        paid: bool | None = None,
    ) -> ProviderError:
        """A ProviderError whose words are scrubbed."""
        return ProviderError(
            kind,
            self.scrub(message),
            error_type=re.sub(r"[^\w.-]", "_", self.scrub(error_type))[:60],
            status_code=status_code,
            retry_after_s=retry_after_s,
            hint=hint,
            paid=paid,
        )

    def refused(self, status: int, body: str, headers: Mapping[str, str]) -> ProviderError:
        """What a server said with a status that is no success."""
        message, names = _told(body)
        return self.error(
            _kind(status, f"{' '.join(names)} {message}"),
            f"HTTP {status}: {message or 'no message'}",
            error_type=names[0] if names else f"http_{status}",
            status_code=status,
            retry_after_s=retry_after_s(headers),
            hint=_HINTS.get(status),
            # Behind a gateway that waited in vain, the call may still have been carried out.
            paid=True if status == 504 else None,
        )


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait: `retry-after-ms`, or `Retry-After` in seconds or as an
    HTTP date; None where it says nothing readable. `headers` is read without regard to case."""
    lower = {name.lower(): value for name, value in headers.items()}
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        said = lower.get(name, "").strip()
        try:
            wait_s = float(said) * unit_s
        except ValueError:
            continue
        if math.isfinite(wait_s) and wait_s >= 0:
            return wait_s
    try:
        until = parsedate_to_datetime(lower.get("retry-after", ""))
    except (ValueError, IndexError, OverflowError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def split_url(url: str) -> SplitResult:
    """The parts of a URL; all empty for what is none."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def basic_auth(url: str) -> tuple[str, str] | None:
    """User and password that stand in a URL, decoded; None where there are none."""
    parts = split_url(url)
    if parts.username is None:
        return None
    return unquote(parts.username), unquote(parts.password or "")


def basic_token(user: str, password: str) -> str:
    """The credentials as the `Authorization: Basic` header carries them."""
    return base64.b64encode(f"{user}:{password}".encode()).decode("ascii")


def without_userinfo(url: str) -> str:
    """`url` as it may be shown and connected to: no user, no password."""
    parts = split_url(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _kind(status: int, said: str) -> FailureKind:
    if status in (400, 403, 422) and _FILTERED.search(said):
        return "content_filter"
    if status in (401, 402, 403, 404) or _NO_MONEY.search(said):
        return "fatal"
    if status == 400 and (_BAD_KEY.search(said) or _NO_MODEL.search(said)):
        return "fatal"
    if status in (408, 409, 425, 429) or status >= 500:
        return "transient"
    # A redirect of a POST is a wrong api_base, the same for every call.
    return "fatal" if status < 400 else "row"


def _told(body: str) -> tuple[str, list[str]]:
    """An error body's message, and its code and type where it names them."""
    try:
        value = strict_loads(body[:_READ_AT_MOST])
    except ValueError:
        return body, []
    if isinstance(value, list) and value:
        value = value[0]
    error = value.get("error", value) if isinstance(value, dict) else value
    if not isinstance(error, dict):
        return str(error), []
    names = [str(error[name]) for name in ("code", "type", "status") if error.get(name)]
    named = [name for name in names if not name.isdigit()]
    return str(error.get("message") or error.get("detail") or body), named
