"""Joins that do not fit into memory: which rows to keep, how many results that gives, how joins share memory."""
