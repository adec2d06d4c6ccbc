"""The kind of error that is reported to the user in one line."""


class UserError(ValueError):
    """A mistake that the user can correct.

    Its text, one line, says what is wrong and what would be right.
    """


def shown(text):
    """Returns a user's text as a message can quote it: on one line, and not too long."""
    line = " ".join(repr(text)[1:-1].split())
    return line if len(line) <= 80 else f"{line[:60]}... ({len(text):,} characters)"
