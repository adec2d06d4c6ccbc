"""What every script takes from its command line, and how it ends after a mistake."""

from shared.common.ending import run
from shared.common.errors import UserError
from shared.common.options import Parser, command_of, positive

__all__ = ["Parser", "UserError", "command_of", "positive", "run"]
