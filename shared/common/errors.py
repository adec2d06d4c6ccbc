"""The kind of error that is reported to the user in one line."""


class UserError(ValueError):
    """A mistake that the user can correct.

    Its text, one line, says what is wrong and what would be right.
    """


def shown(path):
    """Returns how a path appears in a message: in one line, not too long, and printable."""
    text = str(path)
    text = text if len(text) <= 300 else f"{text[:200]}...{text[-50:]}"
    return text if text.isprintable() else ascii(text)


def missing(error):
    """Returns a line that says which package is not there, for a ModuleNotFoundError."""
    package = (error.name or "").partition(".")[0]
    return f"{package} is needed and not installed: pip install -r requirements.txt"
