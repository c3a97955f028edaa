"""The nodes of the shared Ray cluster, and how it is mended.

Two pods of two nodes and a spare, two devices each: pod p0 holds a0 and a1, pod p1 holds b0 and b1,
and the spare is in p1. They are started in alternating order.
"""

from __future__ import annotations

from railweave.scheduler.embedded import HEAD, EmbeddedCluster, EmbeddedNode

NODES = tuple(
    EmbeddedNode(name, 2, domains={"pod": pod})
    for name, pod in [("a0", "p0"), ("b0", "p1"), ("a1", "p0"), ("b1", "p1"), ("spare", "p1")]
)


def restore(cluster: EmbeddedCluster) -> None:
    """Resume what was stopped, end what was added and start again what was killed."""
    for name in (HEAD, *cluster.node_names):
        cluster.resume_node(name)
    for name in cluster.ended_nodes():
        cluster.kill_node(name)
    planned = {node.name: node for node in NODES}
    for name in cluster.node_names:
        if name not in planned:
            cluster.kill_node(name)
    for name in planned.keys() - set(cluster.node_names):
        cluster.add_node(planned[name])
