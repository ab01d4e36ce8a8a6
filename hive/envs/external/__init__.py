"""Environments that are programs in any language, with which hive talks over a socket: the simulator protocol."""
