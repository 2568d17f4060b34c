"""All connections: how many there may be, in all and of one client, and which one ends when another needs room."""

from __future__ import annotations

from typing import Protocol

from uvicorn.server import ServerState

SHARE = 4  # one client may have a quarter of all connections
MOST_BYTES = 256_000_000  # that all connections together may hold
_LOOK_BYTES = 16_000_000  # that are added to them between two looks


class Held(Protocol):
    """What is needed of a connection here."""

    @property
    def size(self) -> int:
        """The bytes that it holds: of a body that is not complete, and of responses that its client has not read."""

    def expire(self, now: float) -> None:
        """End it, if it has waited for too long."""

    def evict(self) -> None:
        """End it now."""


class Client:
    """The connections of one address.

    waiting: those with no complete request, in the order in which they began to wait.
    """

    def __init__(self, address: str, connections: Connections) -> None:
        self._address = address
        self._connections = connections
        self.held: set[Held] = set()
        self.waiting: dict[Held, None] = {}

    def add(self, connection: Held) -> None:
        """Take a connection in."""
        self._connections.clients[self._address] = self
        self._connections.count += 1
        self.held.add(connection)
        self.waiting[connection] = None

    def wait(self, connection: Held) -> None:
        """Note that a connection has no complete request, from now on."""
        if connection in self.held:
            self.waiting[connection] = None

    def release(self, connection: Held) -> None:
        """Forget a connection."""
        self.waiting.pop(connection, None)
        if connection in self.held:
            self.held.remove(connection)
            self._connections.count -= 1
            if not self.held:
                del self._connections.clients[self._address]

    def evict(self) -> None:
        """End the connection that has waited longest."""
        oldest = next(iter(self.waiting))
        self.release(oldest)
        oldest.evict()


class Connections(ServerState):
    """All connections.

    When there are too many, a new one takes the place of one that waits for a request: of the same client if that
    has its share, else of the client with the most connections. A connection whose request is complete is left alone.
    When they hold too many bytes, those that hold most end, of the client that holds most.

    most: how many there may be.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._most_of_one = max(1, most // SHARE)
        self.count = 0
        self.clients: dict[str, Client] = {}
        self._added = 0  # bytes, since the last look at who holds how many

    def add_bytes(self, count: int) -> None:
        """Note that a connection holds more than before; now and then, end some if all hold too much."""
        self._added += count
        if self._added >= _LOOK_BYTES:
            self._added = 0
            self._relieve()

    def _relieve(self) -> None:
        sizes = {client: {each: each.size for each in client.held} for client in self.clients.values()}
        totals = {client: sum(each.values()) for client, each in sizes.items()}
        excess = sum(totals.values()) - MOST_BYTES
        while excess > 0:
            fullest = max(totals, key=totals.__getitem__)
            largest = max(sizes[fullest], key=sizes[fullest].__getitem__)
            ended = sizes[fullest].pop(largest)
            totals[fullest] -= ended
            excess -= ended
            fullest.release(largest)
            largest.evict()

    def admit(self, connection: Held, address: str) -> Client:
        """The client of a connection, which is one of its `waiting` ones; not, if all have a complete request each."""
        client = self.clients.get(address) or Client(address, self)
        if len(client.held) >= self._most_of_one:
            full: Client | None = client
        elif self.count >= self._most:
            full = max((each for each in self.clients.values() if each.waiting), key=_size, default=None)
        else:
            client.add(connection)
            return client
        if full is not None and full.waiting:
            full.evict()
            client.add(connection)
        return client

    def sweep(self, now: float) -> None:
        """End the connections that have waited for too long."""
        for client in list(self.clients.values()):
            for connection in list(client.held):
                connection.expire(now)


def _size(client: Client) -> int:
    return len(client.held)
