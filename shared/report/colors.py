"""The colours of the categories in HTML."""

from matplotlib.colors import to_hex

from shared.records.bars import COLORS


def variable(label):
    """Returns the name of a category's colour in CSS."""
    return f"--{label.replace(' ', '-')}"


def hex_color(label):
    """Returns a category's colour, such as #1f77b4."""
    return to_hex(COLORS[label])
