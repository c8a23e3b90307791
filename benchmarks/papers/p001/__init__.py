"""Srivastava and Widom, Memory-Limited Execution of Windowed Stream Joins, VLDB 2004."""
