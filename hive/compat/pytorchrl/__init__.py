"""The workers of PyTorchRL's `scheme.gradients`. They run the topology of a run in the calling thread.

collectors = CWorkerSet.create_factory(blueprint, num_workers=2)
with GWorker(0, collectors) as worker:
    gradients, info = worker.step()
    worker.apply_gradients()
"""

from hive.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
