"""The file that an environment process executes: it finds the modules that its collector found, and follows orders.

It imports only the standard library before it has the search path of its collector, which its first argument lists.
"""

import json
import sys

if __name__ == "__main__":
    sys.path[:] = json.loads(sys.argv[1])
    from hive.envs.processes.serving import serve

    serve([int(argument) for argument in sys.argv[2:]])
