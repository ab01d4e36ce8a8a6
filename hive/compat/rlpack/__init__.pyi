from hive.compat.rlpack.accumulator import GradAccumulator as GradAccumulator
from hive.compat.rlpack.accumulator import GradientNotFinite as GradientNotFinite
from hive.compat.rlpack.map_of_tensors import MapOfTensors as MapOfTensors
from hive.gradients import ReductionReport as ReductionReport
