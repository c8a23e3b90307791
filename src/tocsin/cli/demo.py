"""Run a small example on local Spark: a stream is silent for five hours, and no alarm is missed."""

from __future__ import annotations

import argparse

SUMMARY = "run a small example on this machine"
EPILOG = "It needs Java 17 or newer and takes about a minute. Exit code: 0, or what Python gives for a failed run."


def configure(parser: argparse.ArgumentParser) -> None:
    """Take no options."""


def run(arguments: argparse.Namespace) -> int:
    """Run the demo."""
    # Imported here because the demo starts an engine, and asking for help should not.
    from tocsin import demo

    demo.main()
    return 0
