"""Row outcomes of each stream as bars. The parts of a bar add up to the rows received."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from tocsin.dashboard.charts.drawing import Drawing, fit_label
from tocsin.formatting import format_count, format_share
from tocsin.report.result import OUTCOMES, StoreSummary

WIDTH, LEFT, RIGHT, ROW = 960, 190, 12, 30


def bars(stores: Sequence[StoreSummary]) -> Markup:
    """Draw a bar per store. The length of a bar represents all rows received."""
    drawing = Drawing(WIDTH, ROW * len(stores) + 4, "row outcomes by stream")
    for place, store in enumerate(stores):
        y, x, width = ROW * place + 4, float(LEFT), WIDTH - LEFT - RIGHT
        drawing.text(LEFT - 8, y + 15, fit_label(store.name), "label", "end")
        for name, count in store.parts.items():
            part = width * count / max(store.received, 1)
            share = format_share(count / max(store.received, 1))
            title = OUTCOMES[name].title
            drawing.box(x, y, part, ROW - 10, f"part-{name}", f"{title}: {format_count(count, 'row')}, {share}")
            if part > 7 * len(title) + 12:
                drawing.text(x + 6, y + 14, title, f"inside on-{name}")
            x += part
    return drawing.markup()
