"""Ray as the engine that starts agents (https://docs.ray.io): Ray places, hive runs.

    placement group, STRICT_SPREAD      a bundle per host with its cores, each on another machine, not the head's
      AgentProcess, a Ray actor         one per bundle; `max_restarts=-1`: after a lost node, Ray places it again
        agent                           a process that the actor starts: what `hive join` runs

The actor's calls carry keys and an address. Ray puts arguments and results of this size into its messages, so the
object store stays empty. Placement group and actors belong to the connection of this process: Ray ends them when it
ends, however it ends.

Whoever reaches a Ray cluster without token authentication can run any code on it, and so read the memory and the keys
of hive. `_is_open` finds out by trying: a process without a token asks the cluster for its nodes.

This is the only module that imports Ray. It does so in the process of the launcher.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any, TypeVar

from hive.distribution import pip_install
from hive.errors import HiveError, HostLost, PlatformError, UsageError
from hive.hosts.agent_process import AgentProcess
from hive.hosts.files import JoinFile
from hive.hosts.launcher import Placed
from hive.native import source_folder
from hive.runtime.process.command import supervisor_environment

START = (
    "this machine must be one of the cluster's: run `ray start --head --num-cpus=0` here and "
    "`ray start --address=...` on the other machines; RAY_ADDRESS names one of several clusters"
)
REACH_S = 5.0  # limit of the first connection
PROBE_S = 30.0  # limit of the attempt to use the cluster without a token
STOP_S = 25.0  # limit of a call that ends an agent; longer than hive.hosts.agent_process.STOP_S
CLOSE_S = 5.0  # limit of the disconnection; Ray does the same when this process exits
OPEN, PROTECTED = "open", "protected"  # results of the attempt
DOCS = "https://docs.ray.io/en/latest/ray-security/token-auth.html"

T = TypeVar("T")


class RayCluster:
    """A connection to a Ray cluster, which implements hive.hosts.launcher.Cluster.

    run: name of the placement group. unprotected: whether a cluster without token authentication may be used. Raises
    PlatformError if Ray is not installed.
    """

    def __init__(self, run: str, unprotected: bool) -> None:
        if importlib.util.find_spec("ray") is None:
            raise PlatformError('hosts.launcher = "ray" needs Ray', hint=pip_install("ray"))
        self.run_name = run
        self.unprotected = unprotected
        self.ray: ModuleType | None = None
        self.group: Any = None
        self.actors: dict[str, Any] = {}

    async def connect(self) -> str:
        """See Cluster. Raises UsageError without a cluster, or if it is unprotected."""
        self.ray = ray = await in_thread(_import)
        address = await in_thread(lambda: _connect(ray))
        if not self.unprotected and await _is_open(ray.get_runtime_context().gcs_address):
            await self.close()
            raise UsageError(
                "this Ray cluster has no token authentication: whoever reaches it can run code on all its machines",
                hint="start the cluster with RAY_AUTH_MODE=token and the same RAY_AUTH_TOKEN (or ~/.ray/auth_token) on "
                f"all machines, and set both here ({DOCS}); or set hosts.unprotected_ray = true in a closed network",
            )
        return address

    async def begin(self, cores: Mapping[str, int]) -> None:
        await in_thread(lambda: self._begin(cores))

    def _begin(self, cores: Mapping[str, int]) -> None:
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        ray = self.ray
        assert ray is not None
        elsewhere = {"ray.io/node-id": f"!{ray.get_runtime_context().get_node_id()}"}
        self.group = placement_group(
            [{"CPU": count} for count in cores.values()],
            strategy="STRICT_SPREAD",
            name=f"hive {self.run_name}",
            bundle_label_selector=[elsewhere] * len(cores),
        )
        folder = source_folder()
        environment = {"PYTHONPATH": supervisor_environment()["PYTHONPATH"]} if folder else {}
        for number, (host, count) in enumerate(cores.items()):
            self.actors[host] = (
                ray.remote(AgentProcess)
                .options(
                    num_cpus=count,
                    max_restarts=-1,
                    max_task_retries=0,
                    max_concurrency=2,  # `stop` beside `run`
                    runtime_env={"env_vars": environment},
                    scheduling_strategy=PlacementGroupSchedulingStrategy(
                        self.group, placement_group_bundle_index=number
                    ),
                )
                .remote()
            )

    async def room(self) -> bool:
        from ray.util.placement_group import placement_group_table

        table = await in_thread(lambda: placement_group_table(self.group))
        return bool(table.get("state") == "CREATED")

    async def placed(self, host: str) -> Placed:
        public, machine = await self._call(host, "key")
        return Placed(public, machine)

    async def run(self, host: str, join: JoinFile) -> str:
        return str(await self._call(host, "run", os.getcwd(), dataclasses.asdict(join)))

    async def stop(self, host: str) -> None:
        try:
            await asyncio.wait_for(self._call(host, "stop"), STOP_S)
        except (HostLost, TimeoutError):
            pass  # then `run` raises HostLost, too, or the next `key` replaces what hangs

    async def _call(self, host: str, method: str, *arguments: Any) -> Any:
        assert self.ray is not None
        try:
            return await getattr(self.actors[host], method).remote(*arguments)
        except self.ray.exceptions.RayError as error:
            raise HostLost(f"report of Ray: {_first_line(error)}") from None

    async def close(self) -> None:
        if self.ray is None:
            return
        try:
            await asyncio.wait_for(in_thread(self._close), CLOSE_S)
        except (HiveError, TimeoutError):
            pass  # Ray does the same when this process has exited
        self.ray = None

    def _close(self) -> None:
        from ray.util.placement_group import remove_placement_group

        assert self.ray is not None
        if self.group is not None:
            remove_placement_group(self.group)  # its actors are killed with it
        self.ray.shutdown()


def _import() -> ModuleType:
    import ray
    import ray.exceptions

    module: ModuleType = ray
    return module


def _connect(ray: ModuleType) -> str:
    """Connect to the running cluster; return the address of this machine there. Raises UsageError."""
    _reach(_address(ray._private.utils.read_ray_address))
    folder, sys.argv[0] = sys.argv[0], ""  # Ray would give its folder to all workers, as the first to import from
    try:
        ray.init(address="auto", log_to_driver=False, configure_logging=False, namespace="hive")
    except ray.exceptions.AuthenticationError as error:
        raise UsageError(
            f"the Ray cluster does not accept the token: {_first_line(error)}",
            hint=f"set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or ~/.ray/auth_token) as on the cluster: {DOCS}",
        ) from None
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UsageError(f"the Ray cluster cannot be used: {_first_line(error)}", hint=START) from None
    finally:
        sys.argv[0] = folder
    return str(ray.util.get_node_ip_address())


def _address(running: Callable[[], str | None]) -> str | None:
    """Return the address that `ray.init` will use. running: returns that of the cluster on this machine."""
    named = os.environ.get("RAY_ADDRESS")
    return running() if not named or named == "auto" else named


def _reach(address: str | None) -> None:
    """Raise UsageError if nothing listens at the address of the cluster, for which Ray would wait minutes."""
    if not address or address in ("auto", "local"):
        raise UsageError("no Ray cluster runs on this machine", hint=START)
    machine, _, port = address.rpartition(":")
    try:
        socket.create_connection((machine, int(port)), REACH_S).close()
    except (OSError, ValueError) as error:
        raise UsageError(f"no Ray cluster runs at {address}: {error}", hint=START) from None


async def _is_open(address: str) -> bool:
    """Whether a process without a token can use the cluster. Raises UsageError if that cannot be found out."""
    environment = {name: value for name, value in supervisor_environment().items() if not name.startswith("RAY_AUTH")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "hive.hosts.ray_launcher", address),
        env=environment | {"RAY_AUTH_MODE": "disabled"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, errors = await asyncio.wait_for(process.communicate(), PROBE_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        out, errors = b"", b"no answer"
    answer = out.decode(errors="replace").strip()
    if answer not in (OPEN, PROTECTED):
        text = answer or errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise UsageError(
            f"whether this Ray cluster asks for a token cannot be found out: {text}",
            hint="set hosts.unprotected_ray = true to use it without this test",
        )
    return answer == OPEN


def _try_without_token(address: str) -> str:
    """Ask the cluster for its nodes. The environment of this process has no token."""
    from ray._raylet import GcsClient
    from ray.exceptions import AuthenticationError

    try:
        GcsClient(address=address).get_all_node_info(timeout=PROBE_S)
    except AuthenticationError:
        return PROTECTED
    return OPEN


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0].rstrip(". ")


def in_thread(work: Callable[[], T]) -> Awaitable[T]:
    """Run blocking work in a thread that does not delay the exit of this process, as those of a pool would."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if not future.done():
            future.set_exception(error) if error else future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            pass  # the loop is closed

    threading.Thread(target=run, name="ray", daemon=True).start()
    return future


if __name__ == "__main__":
    print(_try_without_token(sys.argv[1]))  # noqa: T201
