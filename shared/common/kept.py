"""The folder of --save: what is in it, and whether a training may write there."""

import re

from shared.common.errors import UserError
from shared.common.files import writable_folder

MINUTES = 15  # between two checkpoints, if --save-minutes does not say otherwise
MODEL = "config.json"  # of the model, which is written last
_PART = re.compile(r"^\.part-|\.part$")  # what an interrupted training has left
CHECKPOINT = "checkpoint-{:09d}"  # after so many updates


def checkpoints(folder):
    """Returns the checkpoints in a folder, all of them complete, the newest last."""
    found = folder.glob("checkpoint-*") if folder.is_dir() else []
    return sorted(path for path in found if path.name[-9:].isdecimal() and path.is_dir())


def check(args):
    """Makes sure that a training can keep what --save and --resume ask for.

    Args:
        args: with save, save_minutes and resume.

    Raises:
        UserError: the folder cannot be written, or holds something else.
    """
    folder = args.save
    if not folder:
        for option in ("resume", "save_minutes"):
            if getattr(args, option):
                raise UserError(
                    f"--{option.replace('_', '-')} is about what --save DIR writes; add --save DIR"
                )
        return
    writable_folder(folder, "--save")
    there = checkpoints(folder)
    if there and not args.resume:
        raise UserError(
            f"--save {folder}: it holds a checkpoint of a training that has not ended; add "
            "--resume to go on from there, or choose another folder"
        )
    if args.resume and not there and (folder / MODEL).is_file():
        raise UserError(
            f"--resume: the training in {folder} has ended, and its model is there; leave "
            "--resume out to train anew"
        )
    strange = [p for p in folder.iterdir() if p not in there and not _PART.search(p.name)]
    if strange and not (folder / MODEL).is_file():
        raise UserError(
            f"--save {folder}: there are files in it that are no model; choose another folder"
        )
