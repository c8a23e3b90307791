"""K-slack: the operator of the paper alone. The engine runs these kernels in `operators.reorder.reorder_rows`.

References: Ji et al., ICDE 2016, section III-A.
"""

from __future__ import annotations

import numpy as np

from tocsin.jit import kernel
from tocsin.operators.reorder.k_slack import NEVER_IDLE, ReorderRows, delay_rows, new_released_order
from tocsin.operators.reorder.run_heap import new_queues, reset_queues
from tocsin.runtime.contract import NEVER_SEEN, Int


@kernel
def run_k_slack(newest: Int, rows: ReorderRows, slack_us: int, prompt: bool = False) -> tuple[Int, Int, Int]:
    """Run the K-slack of every stream over buffered rows (stage 1) and then new rows (stage 0), in arrival order.

    Return the released rows in order, the row whose arrival released each row, and the delay of each new row (-1 for a
    buffered row). Update `newest`, the clock of each stream.
    """
    count = rows.time.shape[0]
    queues, sent = new_queues(newest.shape[0], count), new_released_order(count)
    delay, skew = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    reset_queues(queues.marks, rows.stream, 0, count)
    wait = (slack_us, NEVER_IDLE, prompt)
    given = delay_rows((0, count), rows, (newest, np.full(1, NEVER_SEEN)), wait, queues, sent, (delay, skew))
    return sent.row[:given].copy(), sent.by[:given].copy(), delay
