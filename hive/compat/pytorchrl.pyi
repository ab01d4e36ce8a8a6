from hive.facades import CollectedRollout as CollectedRollout
from hive.facades import CollectorThread as CollectorThread
from hive.facades import CWorker as CWorker
from hive.facades import CWorkerSet as CWorkerSet
from hive.facades import Gradients as Gradients
from hive.facades import GWorker as GWorker
from hive.facades import GWorkerSet as GWorkerSet
from hive.facades import Snapshot as Snapshot
