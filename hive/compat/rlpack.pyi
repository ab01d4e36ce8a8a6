from hive.gradients import GradAccumulator as GradAccumulator
from hive.gradients import GradientNotFinite as GradientNotFinite
from hive.gradients import MapOfTensors as MapOfTensors
from hive.gradients import ReductionReport as ReductionReport
