"""Lifecycle: evaluations move the alerts of a rule through their states."""
