"""Benchmarks of Tocsin: `python -m benchmarks` lists them."""
