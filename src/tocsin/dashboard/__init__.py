"""Dashboard: pages over the run directories that runs and backtests wrote. It imports no engine and writes no run.

alert_records → alert_index          the alerts of a log, stored in SQLite while it grows
tail, microbatch, fates, series      numbers by time
both → rundata → store               one run directory; all of them, and what pages ask of them
charts                               drawings as SVG, each with the records that it draws
archive → tracer, range_progress     a process of its own: why an alert fired, out of the rows that a run archived
guard, pages → app                   who may ask; what a page shows; the routes
"""

# Here, since the command line needs it where what serves pages is not installed.
PORT = 8484

__all__ = ["PORT"]
