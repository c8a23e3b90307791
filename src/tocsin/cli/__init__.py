"""Command line: `main.py`, and one module per command. Commands import engines when they run."""
