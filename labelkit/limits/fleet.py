"""The replicas of one sampler: which of them carries a call, and whether a failed one is tried
again.

The only place in labelkit where a call is repeated. It repeats what never became a reply, and
nothing else.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from labelkit.errors import ProviderError
from labelkit.limits.budget import Spend
from labelkit.limits.endpoint import RETRY_AFTER_MAX_S, EndpointState, Limits, Turn
from labelkit.limits.halt import Halted

T = TypeVar("T")

BACKOFF_MAX_S = 60.0


def _unknown() -> tuple[None, None]:
    return None, None


class Fleet:
    """Runs calls under the limits of its endpoints. Equal replicas: any may carry any call.

    The very first call goes out alone, as a probe: a dead key or an unknown model costs one call.
    """

    def __init__(self, limits: Sequence[Limits], *, rng: random.Random | None = None) -> None:
        self._limits = tuple(limits)
        self._halt = limits[0].halt
        self._clock = limits[0].clock
        self._rng = rng or random.Random()
        self._proved = False
        self._probe: Turn | None = None
        self._gate: list[asyncio.Future[None]] = []

    async def run(
        self,
        attempt: Callable[[int, int], Awaitable[T]],
        *,
        affinity: str,
        worst: Callable[[], tuple[float | None, int | None]] = _unknown,
        spend: Callable[[T], Spend],
    ) -> T:
        """`attempt(endpoint, try_number)` under all limits, repeated while it may be.

        endpoint: index into the fleet's limits; try_number counts from 1. `affinity` (the task id)
        keeps calls that share a prompt on one replica. `worst` tells, when a call is to be
        admitted, its worst case in dollars and tokens (prompt + max_tokens), which is reserved
        before and settled after; `spend` reads the cost off the answer. A try that failed at one
        replica is followed by one at another.
        Slots are held during `attempt` only. Raises ProviderError with `tries` and `outage` set,
        or Halted where the run stops admitting and no call of this draw is in flight.
        """
        turn = Turn(affinity, worst, self._rejoin, self._stranded)
        try:
            return await self._run(turn, attempt, spend)
        finally:
            if self._probe is turn:  # cancelled: the next one is the probe
                self._probe = None
                self._open_gate()

    @property
    def crowded(self) -> bool:
        """At every endpoint in use more draws wait than it has slots, for it or for the probe."""
        gated = len(self._gate)
        return all(gated + limits.waiting > limits.limit for limits in self._in_use())

    def disable(self, endpoint: int, why: str) -> None:
        """Use a replica no more; with none left the run is halted."""
        self._limits[endpoint].disable(why)
        self._rebalance()
        self._stranded(self._clock.time())

    def snapshot(self) -> tuple[EndpointState, ...]:
        return tuple(limits.state() for limits in self._limits)

    async def _run(
        self,
        turn: Turn,
        attempt: Callable[[int, int], Awaitable[T]],
        spend: Callable[[T], Spend],
    ) -> T:
        tries = counted = served_at_first = served = 0
        first_s: float | None = None
        while True:
            limits = await self._admitted(turn)
            tries += 1
            if first_s is None:
                first_s = self._clock.time()
                served_at_first = served = self._served()
            try:
                reply = await attempt(self._limits.index(limits), tries)
                spent = spend(reply)
            except ProviderError as error:
                if limits.fail(turn, error):
                    self._rebalance()
                error.tries = tries
                if error.kind == "fatal":
                    self._halt.stop("fatal", str(error))
                    raise
                self._prove(turn)
                turn.avoided = None if error.status_code == 429 else limits
                if error.kind != "transient":
                    error.outage = error.kind != "row" and not limits.available
                    raise
                if self._halt.reason is not None:
                    raise Halted(self._halt.reason) from error
                # While the endpoint is down, or refuses this call but serves others, it is not the
                # draw that fails: such tries are bounded by time, not by number.
                crowded = error.status_code == 429 and self._served() > served
                served = self._served()
                counted += limits.available and not crowded
                delay_s = self._backoff_s(error, max(1, counted))
                late = self._clock.time() + delay_s - first_s > limits.settings.total_timeout_s
                if late or counted >= limits.settings.max_tries:
                    error.outage = served == served_at_first
                    raise
            except BaseException:
                limits.abandon(turn)
                raise
            else:
                if limits.succeed(turn, spent):
                    self._rebalance()
                self._prove(turn)
                return reply
            await self._halt.sleep(delay_s, self._clock)

    async def _admitted(self, turn: Turn) -> Limits:
        loop = asyncio.get_running_loop()
        gated = False
        while not self._proved and self._probe is not turn:
            if self._probe is None:
                self._probe = turn
                break
            gate: asyncio.Future[None] = loop.create_future()
            self._gate.append(gate)
            gated = True
            await self._halt.wait(gate)
        self._halt.check()
        limits = self._choose(turn)
        turn.granted = None
        if not gated and limits.enter(turn):
            return limits
        granted: asyncio.Future[Limits] = loop.create_future()
        turn.granted = granted
        limits.line_up(turn)
        try:
            limits = await self._halt.wait(granted)
            self._halt.check()
        except BaseException:
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                granted.result().withdraw(turn)
            else:
                granted.cancel()
                if self._halt.reason is None:
                    for limits in self._limits:
                        limits.pump()
            raise
        return limits

    def _in_use(self) -> list[Limits]:
        """The available endpoints; where there is none, those that may come back."""
        up = [limits for limits in self._limits if limits.available]
        return up or [limits for limits in self._limits if limits.disabled is None]

    def _choose(self, turn: Turn) -> Limits:
        if len(self._limits) == 1:
            return self._limits[0]
        for limits in self._limits:
            if limits.probe_due():
                return limits
        up = self._in_use()
        if not up or not up[0].available:
            return min(up or self._limits, key=lambda limits: limits.retry_at_s)
        # Rendezvous hashing: each task ranks the replicas in an order of its own, so that a lost
        # one moves only its own tasks.
        up = [limits for limits in up if limits is not turn.avoided] or up
        home = max(up, key=lambda limits: self._rank(limits, turn.affinity))
        if home.load > 2:  # its turn there is more than one whole call away
            return min(up, key=lambda limits: limits.load)
        return home

    def _rank(self, limits: Limits, affinity: str) -> bytes:
        place = f"{self._limits.index(limits)}/{affinity}"
        return hashlib.blake2b(place.encode(errors="surrogatepass"), digest_size=8).digest()

    def _served(self) -> int:
        return sum(limits.successes for limits in self._limits)

    def _backoff_s(self, error: ProviderError, tries: int) -> float:
        jittered_s = self._rng.uniform(0.0, min(BACKOFF_MAX_S, 2.0**tries))
        return max(min(error.retry_after_s or 0.0, RETRY_AFTER_MAX_S), jittered_s)

    def _rejoin(self, turn: Turn) -> None:
        self._choose(turn).line_up(turn)

    def _rebalance(self) -> None:
        """Nobody waits where no call will be made while there is another endpoint."""
        up = self._in_use()
        for limits in self._limits:
            if up and (limits.disabled is not None or (up[0].available and limits not in up)):
                limits.disperse()

    def _stranded(self, now_s: float) -> None:
        if all(limits.gone(now_s) for limits in self._limits):
            whys = dict.fromkeys(state.why for state in self.snapshot())
            disabled = all(limits.disabled is not None for limits in self._limits)
            self._halt.stop("fatal" if disabled else "breaker", "; ".join(whys))

    def _prove(self, turn: Turn) -> None:
        if not self._proved:
            self._proved = True
            self._probe = None
            self._open_gate()

    def _open_gate(self) -> None:
        gate, self._gate = self._gate, []
        for future in gate:
            if not future.done():
                future.set_result(None)
