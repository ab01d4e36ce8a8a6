"""The old place of the classes of PyTorchRL: importing it names the new one."""

raise ImportError("hive.facades is now hive.compat.pytorchrl, with the same names")
