"""The classes of four public documents under the documents' names, for scripts.

    autonomous    `all.approximation` of autonomous-learning-library: models with optimizers, targets and checkpoints
    coach         architectures of Intel's Coach: networks from parameters, trained in a script
    pytorchrl     `scheme.gradients` of PyTorchRL: workers that drive a run's actors in the calling thread
    rlpack        `GradAccumulator` of RLPack: sums and means of gradients

Runs do not import these modules. examples/guide/decisions/documents.md lists the differences from the documents.
"""

from hive.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
