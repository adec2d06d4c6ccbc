"""The answer why a script needs so much memory: a run to a few updates, and what was seen in it."""
