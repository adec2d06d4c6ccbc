"""The kind of error that is reported to the user in one line."""


class UserError(ValueError):
    """A mistake that the user can correct.

    Its text, one line, says what is wrong and what would be right.
    """
