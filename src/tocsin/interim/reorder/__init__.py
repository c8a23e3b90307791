"""Interim reordering: the reorder buffer of a shard, its adaptive wait, and the common wait of all buckets."""
