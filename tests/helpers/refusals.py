"""Checks of calls that are refused, with one line that says why."""

import pytest

from shared.run.errors import UserError


def refused(said, function, *arguments):
    """Call a function, and check that it ends with an error of one line that has a text."""
    with pytest.raises(UserError) as error:
        function(*arguments)
    assert said in str(error.value) and "\n" not in str(error.value), str(error.value)
    return str(error.value)
