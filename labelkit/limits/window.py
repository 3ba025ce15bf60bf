"""How many calls an endpoint may have in flight, learned from its answers.

Additive increase, multiplicative decrease, with two additions: the limit goes back to just below
the last refusal, rests there and creeps past it instead of jumping, and stops growing where more
calls bring no more tokens a second (own servers queue without bound and never refuse). A round is
`limit` successes of calls admitted since the last cut (a refusal is quick to come); where
throughput is measured, of calls admitted since the limit last moved.
"""

from __future__ import annotations

BUSY = 0.8  # growth needs this share of the limit in use
CUT = 0.8
STEP = 0.05
CEILING_ROUNDS = 5  # spent just below the last refusal before one call more is tried
FAILURE_WEIGHT = 20  # successes that one failure takes back: growth ends at 5% failing
PLATEAU_SPAN = 1.5  # throughput is compared between limits at least this far apart
PLATEAU_GAIN = 0.25  # a limit x% higher must bring x/4 % more tokens a second
PLATEAU_ROUNDS = 20  # then growth is tried again
MEASURED_MIN = 40  # fewest successes that a throughput is taken from


class Window:
    """The limit and what is in flight. `why` tells the live display why the limit last moved.

    With `adaptive` off the limit stays at `cap`.
    """

    def __init__(self, cap: int, start: int, *, adaptive: bool) -> None:
        self._cap = cap
        self._start = min(start, cap)
        self._adaptive = adaptive
        self.limit = self._start if adaptive else cap
        self.in_flight = 0
        self.why = "start" if adaptive else "fixed"
        self._doubling = True
        self._ceiling: int | None = None  # the number of calls that was last refused
        self._epoch = 0  # goes up whenever the limit moves
        self._cut_epoch = 0  # calls admitted before it saw a limit that was cut since
        self._hold = 0  # rounds to rest on a plateau
        self._reference: tuple[int, float] | None = None  # a limit and its tokens a second
        self._count = 0  # successes of this round
        self._measured_since_s: float | None = None  # set in a round that measures throughput
        self._tokens = 0  # answered in it

    def admit(self) -> int:
        """Count a call in; returns its epoch, to be handed back when it ends."""
        self.in_flight += 1
        return self._epoch

    def leave(self) -> None:
        """Count a call out that says nothing about the limit."""
        self.in_flight -= 1

    def succeeded(self, epoch: int, tokens: int, now_s: float) -> None:
        """Count a call out that was answered with so many tokens."""
        busy = self.in_flight >= BUSY * self.limit
        self.in_flight -= 1
        counted_from = self._cut_epoch if self._measured_since_s is None else self._epoch
        if not self._adaptive or epoch < counted_from:
            return
        if not busy:
            if self._measured_since_s is not None:  # too little demand: measure again
                self._begin_round(measured_since_s=now_s)
            return
        self._count += 1
        if self._measured_since_s is None:
            at_ceiling = self._ceiling is not None and self.limit == self._ceiling - 1
            if self._count >= self.limit * (CEILING_ROUNDS if at_ceiling else 1):
                self._end_round(now_s)
        else:
            self._tokens += tokens
            if self._count >= max(self.limit, MEASURED_MIN):
                self._end_measured_round(now_s, self._measured_since_s)

    def failed(self) -> None:
        """Count a call out that failed in the server's hands: growth pauses."""
        self.in_flight -= 1
        self._count = max(self._count - FAILURE_WEIGHT, -self.limit)

    def refused(self, epoch: int) -> bool:
        """Count a call out that was answered 429, and cut the limit.

        False: the call was admitted before the last cut, which answered it already.
        """
        self.in_flight -= 1
        if epoch < self._cut_epoch:
            if self._ceiling is not None:
                self._ceiling = min(self._ceiling, max(self.in_flight, self.limit) + 1)
            return False
        if self._adaptive:
            limit = max(1, int(self.limit * CUT))
            self._ceiling = max(self.in_flight, limit) + 1
            self._doubling = False
            self._hold = 0
            self._reference = None
            self._move(limit, f"429 at {self.in_flight + 1} in flight")
        self._epoch += 1
        self._cut_epoch = self._epoch
        return True

    def _begin_round(self, measured_since_s: float | None = None) -> None:
        self._count = 0
        self._tokens = 0
        self._measured_since_s = measured_since_s

    def _end_round(self, now_s: float) -> None:
        if self._hold:
            self._hold -= 1
            self._begin_round()
        elif self._ceiling is None and self._worth_measuring():
            # The calls of the limit before have left: what is answered from now on tells what
            # this limit is worth. (A server that refuses needs no such care.)
            self._begin_round(measured_since_s=now_s)
        else:
            self._grow()

    def _worth_measuring(self) -> bool:
        """Whether the limit is far enough from the one last measured, and not below the start: a
        few calls take long to tell anything, and there growth was never in question."""
        if self._reference is None:
            return self.limit >= self._start
        return self.limit >= PLATEAU_SPAN * self._reference[0]

    def _end_measured_round(self, now_s: float, since_s: float) -> None:
        speed = self._tokens / max(now_s - since_s, 1e-9)
        low, low_speed = self._reference or (self.limit, 0.0)
        wanted = low_speed * (1 + PLATEAU_GAIN * (self.limit / low - 1))
        if speed >= wanted:
            self._reference = (self.limit, speed)
            self._grow()
            return
        # Up to the knee throughput followed the limit, and there it ended.
        knee = round(low * max(CUT, speed / low_speed))
        self._doubling = False
        self._hold = PLATEAU_ROUNDS
        self._reference = None
        self._move(min(self.limit, knee), f"no more tokens a second above {knee} in flight")

    def _grow(self) -> None:
        limit, ceiling = self.limit, self._ceiling
        if ceiling is not None and limit > ceiling / CUT:
            # So far above the last refusal the server has changed: look for its limit anew.
            ceiling = self._ceiling = None
            self._doubling = True
        creep = max(1, int(STEP * limit))
        if ceiling is None:
            step = limit if self._doubling else creep
        elif limit + 1 < ceiling:  # half the way back up
            room = ceiling - 1 - limit
            step = min(room, max(creep, room // 2))
        elif limit <= (1 + STEP) * ceiling:
            step = 1
        else:  # perhaps the server has changed: as far again above the last refusal
            step = max(creep, limit - ceiling)
        limit += step
        self._move(min(limit, self._cap), "clean round")

    def _move(self, limit: int, why: str) -> None:
        if limit != self.limit:
            self.limit, self.why = limit, why
            self._epoch += 1
        self._begin_round()
