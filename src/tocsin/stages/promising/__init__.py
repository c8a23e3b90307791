"""Promising tuples: summaries of streams, and work that goes where they promise most."""
