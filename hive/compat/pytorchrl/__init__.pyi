from hive.compat.pytorchrl.collection import CollectorThread as CollectorThread
from hive.compat.pytorchrl.collection import CWorker as CWorker
from hive.compat.pytorchrl.collection import CWorkerSet as CWorkerSet
from hive.compat.pytorchrl.g_worker_set import GWorkerSet as GWorkerSet
from hive.workers import CollectedRollout as CollectedRollout
from hive.workers import Gradients as Gradients
from hive.workers import GWorker as GWorker
from hive.workers import Snapshot as Snapshot
