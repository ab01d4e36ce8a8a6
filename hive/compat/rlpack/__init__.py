"""RLPack's accumulator of gradients.

accumulator = GradAccumulator(None, bootstrap_rounds=4)
accumulator.accumulate(network.named_parameters())
accumulator.mean_reduce(into=network)
"""

from hive.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
