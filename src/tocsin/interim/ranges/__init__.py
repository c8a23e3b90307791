"""Interim range requests: a pipeline of requests and elements with pages of its own."""
