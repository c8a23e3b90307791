"""Runtime: execution of a plan over rows and time. `session.py` is the entry for engines, tests and traces."""
