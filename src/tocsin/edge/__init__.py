"""Edge filter: omits rows that no alarm needs at their source, before they are sent. The command is `tocsin edge`.

    bytes → lines → rows → keyed reducer (a key reducer per key, one line buffer) → output queue → bytes

A row is covered when other rows represent it in every window; a covered row can be omitted. A received row is delayed
until it is due. A due row that is not covered is sent as soon as the output accepts it. Delayed rows and due rows that
wait for the output are buffered; the count `held` has both.

`event_loop` connects these parts to file descriptors, signals and the system clock. The package needs NumPy and
never imports Numba, so it starts fast and runs on small devices.
"""
