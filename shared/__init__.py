"""What all stages share: options, data, models, measurement. A stage's own idea is never in here."""


class UserError(ValueError):
    """A mistake that the user can mend: its text, one line, says what was wrong and what would be right."""
