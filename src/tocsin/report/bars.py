"""What became of the rows of each stream, as bars that add up."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from tocsin.report.result import RARE, StoreSummary
from tocsin.report.svg import Drawing

# What people are told where the name of a count says little.
WORDS = {"quarantined": "not usable", **RARE}
WIDTH, LEFT, RIGHT, ROW = 960, 190, 12, 30


def bars(stores: Sequence[StoreSummary]) -> Markup:
    """Draw a bar per store: its whole length is what was received."""
    drawing = Drawing(WIDTH, ROW * len(stores) + 4, "what became of the rows of each stream")
    for place, store in enumerate(stores):
        y, x, width = ROW * place + 4, float(LEFT), WIDTH - LEFT - RIGHT
        drawing.text(LEFT - 8, y + 15, store.name, "label", "end")
        for name, count in store.parts.items():
            part = width * count / max(store.received, 1)
            share = 100 * count / max(store.received, 1)
            words = WORDS.get(name, name)
            drawing.box(x, y, part, ROW - 10, f"part-{name}", f"{words}: {count:,} rows, {share:.1f} %")
            if part > 7 * len(words) + 12:
                drawing.text(x + 6, y + 14, words, f"inside on-{name}")
            x += part
    return drawing.markup()
