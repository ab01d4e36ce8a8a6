"""Networks from parameters, trained in a script, as in the architectures of Intel's Coach.

parameters = NetworkParameters(heads_parameters=[HeadParameters("value")])
network = TorchArchitecture(parameters, spaces, "main")
network.train_on_batch(inputs, targets)
"""

from hive.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
