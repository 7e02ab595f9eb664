"""Tables and page of what a folder holds so far. Imports no torch, which takes seconds."""

from pathlib import Path

from regard.comparison.export import save_tables
from regard.comparison.page import save_page
from regard.comparison.table import Comparison


def summarize(out: Path) -> Comparison:
    """Write tables and page of what is there so far.

    Raises:
        UserError: the folder isn't a comparison.
    """
    comparison = Comparison.load(out)
    save_tables(comparison)
    save_page(comparison)
    return comparison
