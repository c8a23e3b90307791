"""The command line: `main.py`, and one file per command. A command imports what it needs when it runs."""
