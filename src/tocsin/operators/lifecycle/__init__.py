"""Lifecycle: evaluations drive the alerts of a rule."""
