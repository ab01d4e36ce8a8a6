"""Environments in processes of their own: limited, restarted and counted one by one."""
