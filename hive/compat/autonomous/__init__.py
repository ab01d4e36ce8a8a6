"""Function approximation as in `all.approximation` of autonomous-learning-library.

Works with any torch module and any torch optimizer, in a single process:

    q = QNetwork(network, torch.optim.Adam(network.parameters()), target=FixedTarget(100))
    q.reinforce(loss)
"""

from hive.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
