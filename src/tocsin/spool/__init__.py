"""Spool: an append-only log of messages on disk, for a source that cannot be asked twice.

Idea: messages are numbered from 0 on and written to segment files, each named by the number of its first message. One
process at a time writes (a lock file says who); any may read. `append` returns when the messages are on the disk, so
what is acknowledged after it can be read again after any crash.

Guarantee: a number that `span` or `append` has given stands for the same message for ever, until `discard` lets it go.
A message that was being written at a crash is not there, or there whole: a torn end is cut off when the next writer
comes, and put aside. A full disk leaves the spool as it was before the failed `append`. Damage on the disk costs the
messages that it hit and no others: they are read as lost, with their numbers, and what is behind them as it was.
Cost: one write and one fsync per call of `append`; 30 bytes per message besides its topic and payload.
"""

from tocsin.spool.log import SEGMENT_BYTES, SpoolReader, SpoolWriter, discard
from tocsin.spool.records import LOST, Message

__all__ = ["LOST", "Message", "SEGMENT_BYTES", "SpoolReader", "SpoolWriter", "discard"]
