"""Training loops of our own, each algorithm in one file and one process with torch, as in CleanRL: peers of hive."""
