"""A Ray cluster as the workers: the only module that uses Ray [moritz2018]_.

Calls become tasks, and kept results become objects in the shared memory of the machine that computed them. Ray reruns
the tasks of a lost worker elsewhere and recomputes lost objects. Results are collected in a fixed order, so nothing
depends on the order in which workers finish.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import secrets
import shutil
import socket
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed, wait
from importlib import import_module
from importlib.metadata import version
from typing import Any, Self, TypeVar

import numpy as np

from querywise.errors import ClusterError
from querywise.runtime.progress import doing, track
from querywise.runtime.threads import DaemonThreadPool, alone, available_cores
from querywise.runtime.values import is_whole
from querywise.runtime.workers import Arguments, Kept, Workers, use_workers

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Other = TypeVar("_Other")

AUTO = "auto"
_PORTS = "A cluster's clients connect to ray://host:10001, its own machines to host:6379."
_INSTALL = "pip install 'querywise[cluster]'"
_TRIES = 20  # attempts of a task whose worker is lost; errors of the work itself are never retried
_CONNECTIONS = 3  # attempts to connect
_AHEAD = 4  # tasks in flight per core, so that results do not fill the memory
_JOBS = 4  # concurrent jobs that submit tasks themselves
_PULSE = 1  # seconds between checks whether to keep waiting
_LEAVE = 10  # seconds for canceled jobs to notice
_PATIENCE = 10  # seconds to wait for an address to respond
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # environment variable
_FOREIGN = (  # environment variables of other clusters: their state, their token, and code that they run
    *("RAY_ADDRESS", "RAY_REDIS_ADDRESS", "RAY_AUTH_TOKEN", "RAY_RUNTIME_ENV_HOOK"),
    *("RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_OVERRIDE_JOB_RUNTIME_ENV", "RAY_LD_PRELOAD_ON_WORKERS"),
)
_SHORT = 30  # characters of a path to which Ray adds up to 70; the limit for sockets is 107
_SMALL = 65_536  # bytes that are sent with every task


class Cluster(Workers):
    """Workers on one or many machines, used inside a `with` block.

    Fitting, comparing and evaluating inside the block run on its workers:

        with Cluster("ray://head:10001"):
            ranker = KnnOffline2(RankSVM(), k=500).fit(open_shards("train.parquet"))

    Args:
        address: "auto" starts Ray on this machine, `ray://host:port` or `host:port` is a cluster that runs already.
            There, the same querywise must be installed, and files must be found under the same paths.

    Raises:
        ClusterError: When it is entered: Ray is not installed, the address is invalid or does not respond, or the
            machines have another version of querywise.

    >>> from querywise import Cluster
    >>> Cluster("ray://head:10001").address  # nothing is asked before it is entered
    'ray://head:10001'
    """

    memory: int | None = None  # Ray has its own limit
    parts = 16  # fixed, since sums must not depend on the number of workers

    def __init__(self, address: str = AUTO) -> None:
        self.address = address
        self._given_up = threading.Event()
        self._inside = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._ray = _ray()
        try:
            self._begin()
        except BaseException:
            self._inside.close()
            raise
        self._run = self._ray.remote(num_cpus=1, max_retries=_TRIES)(_run)
        self._inside.enter_context(use_workers(self))
        return self

    def __exit__(self, *error: object) -> None:
        self._inside.close()

    def stream(self, work: Callable[..., _Result], *columns: Arguments, shared: Arguments = ()) -> Iterator[_Result]:
        """Yield the results of tasks on any worker, in order; at most `_AHEAD` tasks per core are in flight."""
        rows = list(zip(*columns, strict=True))
        given = self._given(shared, len(rows))
        waiting: deque[Any] = deque()
        for row in rows:
            waiting.append(self._submitted(self._run, work, *row, *given))
            if len(waiting) >= self._limit:
                yield self._got(waiting.popleft())
        while waiting:
            yield self._got(waiting.popleft())

    def keep(self, work: Callable[..., _Result], *columns: Arguments, shared: Arguments = ()) -> list[Kept]:
        """Return references to the results, which stay in shared memory."""
        return [kept for (kept,) in self._begun(1, work, columns, shared)]

    def both(
        self, work: Callable[..., tuple[_Result, _Other]], *columns: Arguments, shared: Arguments = ()
    ) -> tuple[list[_Result], list[Kept]]:
        """Return the first items of the results, and references to the second items."""
        pairs = self._begun(2, work, columns, shared)
        return [self._got(first) for first, _ in pairs], [second for _, second in pairs]

    def together(
        self, job: Callable[[_Item], _Result], items: Sequence[_Item], label: str, *, side_by_side: bool = False
    ) -> list[_Result]:
        """Run some jobs at once, each in a thread that mostly waits; if one fails, the others stop waiting."""
        pool = DaemonThreadPool(_JOBS)
        results = [pool.submit(job, item) for item in items]
        try:
            for _, done in zip(track(items, label), as_completed(results), strict=True):
                done.result()
            return [each.result() for each in results]
        except BaseException:
            self._given_up.set()
            pool.shutdown()
            wait(results, timeout=_LEAVE)
            raise
        finally:
            pool.shutdown()
            self._given_up.clear()

    def _begun(self, returns: int, work: Any, columns: Sequence[Arguments], shared: Arguments) -> list[Any]:
        """Return references to the results of all calls; at most `_AHEAD` tasks per core are in flight."""
        rows = list(zip(*columns, strict=True))
        given = self._given(shared, len(rows))
        run = self._run.options(num_returns=returns)
        begun: list[Any] = []
        for number, row in enumerate(rows):
            made = self._submitted(run, work, *row, *given)
            begun.append(made if returns > 1 else [made])
            if number >= self._limit:
                self._wait(begun[number - self._limit][0])
        return begun

    def _given(self, shared: Arguments, calls: int) -> list[Any]:
        """Return the shared arguments of all calls, put into the object store unless they are small."""
        with self._connected():
            put, kept = self._ray.put, self._ray.ObjectRef
            return [each if calls < 2 or _is_small(each) or isinstance(each, kept) else put(each) for each in shared]

    def _submitted(self, run: Any, *arguments: Any) -> Any:
        with self._connected():
            return run.remote(*arguments)

    def _got(self, reference: Any) -> Any:
        from ray.exceptions import RayError, RayTaskError

        self._wait(reference)
        try:
            with self._connected():
                return self._ray.get(reference)
        except RayTaskError as error:
            raise error.cause from None
        except RayError as error:
            first = str(error).strip().split("\n")[0]
            raise ClusterError(
                f"The cluster could not finish a task in {_TRIES + 1} attempts: {type(error).__name__}: {first} "
                "Are its machines short of memory, or shutting down? Finished work is on disk and will be reused next "
                "time."
            ) from None

    def _wait(self, reference: Any) -> None:
        """Wait until a result is ready on any machine."""
        with self._connected():
            while not self._ray.wait([reference], timeout=_PULSE, fetch_local=False)[0]:
                if self._given_up.is_set():
                    raise ClusterError("Canceled because another task failed.")

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        """Raise a clear error if Ray's client has lost its cluster, before its error is mistaken for a file error."""
        try:
            yield
        except Exception as error:
            if not self._is_disconnected(error):
                raise
            raise _LostError(
                f"{self.address}: the connection to the cluster was lost ({_why(error).rstrip('.')}). "
                "Start again: finished work is on disk and will be reused."
            ) from None

    def _is_disconnected(self, error: Exception) -> bool:
        """Return whether an error means that Ray's client has lost its cluster, rather than that a task failed."""
        from grpc import RpcError
        from ray.exceptions import RayError

        if isinstance(error, (RayError, ClusterError)):  # an error of a task, which may also be a ConnectionError
            return False
        return isinstance(error, (ConnectionError, RpcError)) or not self._ray.is_initialized()

    def _begin(self) -> None:
        """Connect to a working cluster, retrying lost connections, since no work has been done yet."""
        for left in reversed(range(_CONNECTIONS)):
            try:
                with doing("Starting Ray" if self.address == AUTO else f"Connecting to {self.address}"):
                    self._connect()
                with self._connected():
                    self._check()
                break
            except _LostError:
                self._inside.close()
                if not left:
                    raise

    def _connect(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_worker_niceness", "0")  # workers started here are all that this program runs
        if self.address != AUTO:
            _must_answer(self.address)
        if self._ray.is_initialized():
            raise ClusterError("Ray is already running in this process; end it with ray.shutdown() first.")
        options: Any = {"address": self.address, "log_to_driver": False, "logging_level": "CRITICAL"}
        if self.address == AUTO:
            self._inside.enter_context(environment(**dict.fromkeys(_FOREIGN)))
            folder = self._inside.enter_context(private_folder(_SHORT))
            self._inside.enter_context(_own_token(os.path.join(os.path.dirname(folder), "token")))
            # For this process only: no other machine reaches its ports, no other user its files.
            options |= {"address": "local", "num_cpus": available_cores()}
            options |= {"include_dashboard": False, "_temp_dir": folder}
            self._inside.enter_context(_on_loopback())
        self._inside.callback(self._ray.shutdown)
        try:
            self._ray.init(**options)
        except (RuntimeError, OSError, ValueError) as error:
            kind = _LostError if isinstance(error, ConnectionError) else ClusterError
            raise _unreachable(self.address, f"Ray does not answer: {_why(error)} {_PORTS}", kind) from None

    def _versions(self) -> list[str]:
        """Return the querywise version of each machine."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

        ask = self._ray.remote(num_cpus=0)(_version)
        alive = [each["NodeID"] for each in self._ray.nodes() if each["Alive"] and each["Resources"].get("CPU")]
        asked = [ask.options(scheduling_strategy=On(node, soft=True)).remote() for node in alive]
        try:
            return list(self._ray.get(asked))
        except self._ray.exceptions.RayError:
            return ["none"]

    def _check(self) -> None:
        """Raise ClusterError for a cluster without workers, or with another version of querywise."""
        cores = int(self._ray.cluster_resources().get("CPU", 0))
        if cores < 1:
            raise ClusterError(f"{self.address}: the cluster has no cores to work with. Start a node.")
        self._limit = _AHEAD * cores
        ours = version("querywise")
        theirs = next((each for each in self._versions() if each != ours), ours)
        if theirs != ours:
            raise ClusterError(
                f"{self.address}: its machines have querywise {theirs}, here it is {ours}. Install the same "
                f"on all of them: pip install 'querywise[cluster]=={ours}'"
            )


RayCluster = Cluster  # former name


class _LostError(ClusterError):
    """An error for a lost connection to the cluster, whose server process for clients sometimes fails to start."""


def _why(error: Exception) -> str:
    """Return the most informative line of a Ray error."""
    details = re.search(r'details = "(.+)"', str(error))  # of a remote call
    lines = str(error).strip().split("\n")
    return details[1] if details else lines[-1] if lines[0].endswith(":") else lines[0]


# The next three functions use private parts of Ray, which has no public way to restrict a cluster to this machine and
# user: it reads its settings when it is imported, which may already have happened. pyproject.toml bounds its version.


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """Make Ray use this machine's loopback address, as it does on systems where it creates no clusters.

    Passing the address as an argument does not work: Ray replaces 127.0.0.1 by an address that other machines reach.
    """
    try:
        from ray._private import ray_constants

        before = ray_constants.ENABLE_RAY_CLUSTER
    except (ImportError, AttributeError):
        found = f"Ray {version('ray')} cannot be kept to this machine."
        raise ClusterError(f"{found} Install another version: {_INSTALL}") from None
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        with environment(**{_CLUSTERS: "0"}):
            yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _own_token(path: str) -> Iterator[None]:
    """Use a token for this cluster only: other users may read Ray's own token file. Older versions have no tokens."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32))
    with environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=path):
        _read_token_anew()
        yield
    _read_token_anew()


def _read_token_anew() -> None:
    with contextlib.suppress(ImportError, AttributeError):
        raylet: Any = import_module("ray._raylet")
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()


def keep_quiet() -> None:
    """Keep Ray's messages about lost workers off standard output; to be called before importing it."""
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^")


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ClusterError(f"A cluster needs Ray, which is not installed. Install it: {_INSTALL}") from None
    return ray


def _must_answer(address: str) -> None:
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not host or not is_whole(port):
        raise _unreachable(address, "expected auto, or where a cluster runs: ray://host:10001 or host:6379.")
    import grpc

    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
        with grpc.insecure_channel(f"{host}:{port}") as channel:
            grpc.channel_ready_future(channel).result(timeout=_PATIENCE)
    except grpc.FutureTimeoutError:
        raise _unreachable(address, f"what answers there is not Ray. {_PORTS}") from None
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        started = "`ray start --head` starts one, and prints its address."
        raise _unreachable(address, f"nothing answers there ({why}). Is the cluster running? {started}") from None


def _unreachable(address: str, why: str, kind: type[ClusterError] = ClusterError) -> ClusterError:
    return kind(f"address={address!r}: {why}", arguments=("address",))


def _is_small(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.nbytes <= _SMALL)
    plain = inspect.isfunction(value)  # a method would carry its whole object
    return value is None or plain or isinstance(value, (bool, int, float, str))


def _version() -> str:
    return version("querywise")


def _run(work: Callable[..., Any], *arguments: Any) -> Any:
    """Run one call on a worker, which has one core to itself."""
    with alone():
        return work(*arguments)


@contextlib.contextmanager
def environment(**values: str | None) -> Iterator[None]:
    """Set environment variables while the block runs; those with value None are removed."""
    before = {name: os.environ[name] for name in values if name in os.environ}
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)
        os.environ.update(before)


@contextlib.contextmanager
def private_folder(longest: int) -> Iterator[str]:
    """Yield a path inside a folder that only this user can access, removed at the end, for programs whose own is open.

    If the enclosing folder's path has more than `longest` characters, /tmp is used.
    """
    where = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="qw-", dir=where if len(where) <= longest else "/tmp")
    try:
        yield os.path.join(folder, "ray")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
