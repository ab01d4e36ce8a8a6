"""`python -m hive` is the `hive` command."""

from hive.cli import main

main()
