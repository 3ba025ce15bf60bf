"""The one retry and admission layer between a run and its model endpoints.

It decides when a call may go out, to which replica, and whether a failed one is tried again. It
knows nothing of tasks, requests or ledgers, and makes no call itself.
"""

from labelkit.limits.budget import Budget, Spend
from labelkit.limits.endpoint import BURST, EndpointState, Limits, LimitSettings
from labelkit.limits.fleet import Fleet
from labelkit.limits.halt import Clock, Halt, Halted

__all__ = [
    "BURST",
    "Budget",
    "Clock",
    "EndpointState",
    "Fleet",
    "Halt",
    "Halted",
    "LimitSettings",
    "Limits",
    "Spend",
]
