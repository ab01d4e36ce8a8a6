"""A Ray cluster of three nodes on this machine, with token authentication; commands come from stdin.

    ready ADDRESS <- at the start        remove -> removed          add -> added
                                         stored -> BYTES: those that the object stores of all nodes have ever held
    The end of stdin ends the cluster.

Ray runs in a process of its own here, not in that of pytest, where its threads, signals and warnings would disturb.
"""

from __future__ import annotations

import sys

import ray
from ray._private.internal_api import node_stats
from ray.cluster_utils import Cluster

STORE_BYTES = 80_000_000  # the least that Ray accepts is a little less


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # Ray prints there, too
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False},
    )
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES) for _ in range(2)]
    ray.init(cluster.address, log_to_driver=False)
    try:
        print("ready", cluster.address, file=answers, flush=True)
        for line in sys.stdin:
            match line.strip():
                case "remove":
                    cluster.remove_node(nodes.pop(0), allow_graceful=False)
                    print("removed", file=answers, flush=True)
                case "add":
                    nodes.append(cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES))
                    print("added", file=answers, flush=True)
                case "stored":
                    print(sum(map(stored, ray.nodes())), file=answers, flush=True)
    finally:
        ray.shutdown()
        cluster.shutdown()


def stored(node: dict[str, object]) -> int:
    """The bytes of all objects that a node's store holds or has held."""
    if not node["Alive"]:
        return 0
    stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], False).store_stats
    return int(stats.object_store_bytes_used + stats.cumulative_created_bytes + stats.spilled_bytes_total)


if __name__ == "__main__":
    main()
