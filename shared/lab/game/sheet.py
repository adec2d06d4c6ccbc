"""The scripts on the teacher's sheet: known solutions and mistakes of each level, judged."""

import tempfile
from pathlib import Path

from shared.lab.game import judge, levels, texts


def verdicts(attempts):
    """Return the verdicts on scripts, (Level, name of a card, Change or None), in order."""
    with tempfile.TemporaryDirectory() as folder:
        plays = []
        for number, (level, card, change) in enumerate(attempts):
            # A folder for each, since the judge's sentences name the file as a player's is named.
            path = Path(folder, str(number), f"fit_{level.number}.py")
            path.parent.mkdir()
            path.write_text(level.text(change))
            plays.append(judge.Play(level, card, path))
        judged = judge.judge(plays)
        for play, verdict in zip(plays, judged):
            verdict["printed"] = texts.lines(verdict, play.path)
        return judged


def everything():
    """Return all scripts of the sheet: each level as handed out, its solutions, and its tries."""
    return [
        (level, level.card, change)
        for level in levels.LEVELS
        for change in (None, *level.solutions, *level.tries)
    ]
