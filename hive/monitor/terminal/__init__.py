"""The terminal UI, of Textual's own widgets. Only this package imports textual.

app                  the application: polls the run in a thread, passes snapshots to the panes, sends requests
view                 what all parts share: the run, its latest snapshot, and which requests it would accept now
overview_pane, actors_pane, learning_pane, logs_pane    the four screens
dialogs              confirmations, input, the detail of an actor, a crash report
palette              the command palette
widgets              blocks of styled text, and a table that updates only changed cells
"""
