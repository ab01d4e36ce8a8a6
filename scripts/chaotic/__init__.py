"""Chaos: real runs whose processes are killed and stopped at random, and the promises that must hold nevertheless.

command     the command line, and the runs one after another
sandbox     a private folder for runs, and the processes and files that they leave behind
strikes     the choice of victim, signal and time by one seeded generator
watched     a run observed from outside: control socket, status pages, event log
leaks       memory, descriptors and processes of a run, and whether they grow
trial       one run under chaos
promises    the promises, judged by the observations
report      the table and the JSON document
"""
