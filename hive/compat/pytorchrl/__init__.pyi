from hive.compat.pytorchrl.collection import CWorker as CWorker
from hive.compat.pytorchrl.collection import CWorkerSet as CWorkerSet
from hive.compat.pytorchrl.collector_thread import CollectedRollout as CollectedRollout
from hive.compat.pytorchrl.collector_thread import CollectorThread as CollectorThread
from hive.compat.pytorchrl.g_worker import GWorker as GWorker
from hive.compat.pytorchrl.g_worker_set import GWorkerSet as GWorkerSet
from hive.compat.pytorchrl.gradients import Gradients as Gradients
from hive.compat.pytorchrl.weights import Snapshot as Snapshot
