from hive.compat import autonomous as autonomous
from hive.compat import coach as coach
from hive.compat import pytorchrl as pytorchrl
from hive.compat import rlpack as rlpack
