"""What every service has, whatever it answers: limits, a token, counts, and whether it is about to end."""

from __future__ import annotations

from querywise.service.limits import BoundedThreadPool, Limits
from querywise.service.metrics import Metrics


class Hosting:
    """A service that a server runs and a guard stands before.

    limits: on requests. token: what they must carry, if there is one.
    """

    def __init__(self, limits: Limits | None, token: str | None) -> None:
        self.limits = limits or Limits()
        self.token = token
        self.metrics = Metrics()
        self.judges = BoundedThreadPool(self.limits)  # a disk that does not answer holds nobody else up
        self.draining = False  # a signal to stop has arrived: /readyz says 503, requests are still answered
        self.closing = False  # the listening socket is closed: every response says `connection: close`

    @property
    def serves(self) -> str:
        """Say what is served, in the words of the log."""
        raise NotImplementedError
