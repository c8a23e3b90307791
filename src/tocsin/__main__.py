"""Run Tocsin from the command line: `python -m tocsin check FILE`."""

import sys

from tocsin.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
