"""Reorder: rows wait for out-of-order rows, and are processed in order of event time. The wait can follow a recall."""
