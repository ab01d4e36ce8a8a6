"""The classes that PyTorchRL documents, for scripts. They run the topology of a run in the caller's thread.

    collection      CWorkerSet, CollectorThread: the collectors of a run
    g_worker_set    GWorkerSet: the whole trainer, an update at a time

GWorker is the class that the gradient worker's actor wraps (hive.workers).
"""

from hive.facades.collection import CollectorThread, CWorker, CWorkerSet
from hive.facades.g_worker_set import RESOURCES, GWorkerSet
from hive.workers import CollectedRollout, Gradients, GWorker, Snapshot

__all__ = [
    "RESOURCES",
    "CWorker",
    "CWorkerSet",
    "CollectedRollout",
    "CollectorThread",
    "GWorker",
    "GWorkerSet",
    "Gradients",
    "Snapshot",
]
