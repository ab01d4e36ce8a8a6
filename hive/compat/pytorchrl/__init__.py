"""The workers of PyTorchRL's `scheme.gradients`.

    collectors = CWorkerSet.create_factory(blueprint)
    with GWorker(0, collectors) as worker:
        gradients, info = worker.step()
        worker.apply_gradients()

Synchronous collection is made in the calling thread, asynchronous collection in a CollectorThread.
"""

from hive.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
