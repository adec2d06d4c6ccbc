"""The numbers in the message of PyTorch's out-of-memory error."""

import re

# The number's name, and the text that stands before it in the message.
NUMBERS = {
    "tried": "Tried to allocate ",
    "capacity": "total capacity of ",
    "free": "of which ",
    "process": "this process has ",
    "allocated": "Of the allocated memory ",
    "idle": "allocated by PyTorch, and ",
}
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def numbers(message):
    """Return the numbers of an out-of-memory message in bytes, by the names of NUMBERS."""
    amounts = {}
    for name, before in NUMBERS.items():
        # A message in other words ends in an error here, and not in figures of something else.
        amount, unit = re.search(rf"{before}([\d.]+) (\w+)", message).groups()
        amounts[name] = round(float(amount) * UNITS[unit])  # of two decimals, so it is near
    return amounts
