"""Chaos: real runs whose processes are killed and stopped at random, and what must hold even so.

command     the command line, and the runs one after another
house       a private place for runs, and what they leave behind
strikes     who is hit, how and when: one seeded generator; and hitting
looks       what is seen of a run from outside: control socket, status pages, events, /proc
trial       one run under chaos
promises    what must hold, judged from what was observed
report      the table, the document
"""
