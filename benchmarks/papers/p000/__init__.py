"""Cai et al., Optimization of Threshold Functions over Streams, PVLDB 14(6), 2021."""
