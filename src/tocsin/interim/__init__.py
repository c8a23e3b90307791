"""Interim: CPU budgets and range requests of the first design.

They run behind the contract of `runtime/contract.py`. Each package is removed when an operator in `tocsin.operators`
replaces it. No new code may depend on their structure.
"""
