"""Which pictures a user's folder has: counted before they are read, or refused."""

import os

from torchvision.datasets.folder import IMG_EXTENSIONS
from tqdm import tqdm

from shared.common.errors import UserError, shown
from shared.common.loading import this_process

EXTENSIONS = (*IMG_EXTENSIONS, ".gif")
MOST_CLASSES = 10_000
DEEPEST = 20  # folders inside each other
# A folder of which, after so many files, fewer than 1 in 100 is a picture is something else: a
# home, a disk.
ENOUGH = 10_000


class Folder:
    """The pictures in <class>/*, at any depth, in the order in which torchvision's ImageFolder is.

    Attributes:
        classes: list of str, sorted.
        paths: list of str.
        labels: list of int, the class of each.
    """

    def __init__(self, folder):
        """Finds the pictures.

        Args:
            folder: pathlib.Path.

        Raises:
            UserError: it is no folder of pictures, or a part of it cannot be read.
        """
        self.folder, self.looked = folder, 0
        self.paths, self.labels = [], []
        self.classes = sorted(entry.name for entry in _entries(folder) if _is_folder(entry))
        if len(self.classes) > MOST_CLASSES:
            raise UserError(
                f"--data {shown(folder)}: it has {len(self.classes):,} folders, but each is a"
                f" class, and more than {MOST_CLASSES:,} are no data set"
            )
        # Links from it to these would never end.
        above = {_identity(path) for path in (folder, *folder.resolve().parents)}
        hide = this_process()[0] != 0
        bar = tqdm(desc="counting pictures", unit="file", delay=2, leave=False, disable=hide)
        with bar as self.bar:
            for label, name in enumerate(self.classes):
                found = sorted(self._pictures_in(folder / name, above))
                if not found:
                    raise UserError(
                        f"--data {shown(folder)}: every class needs a folder of its own with"
                        f" pictures in it, <class>/*.jpg or *.png, but {shown(name)} has none"
                    )
                self.paths += [os.path.join(*parts) for parts in found]
                self.labels += [label] * len(found)
        if not self.classes:
            raise UserError(
                f"--data {shown(folder)}: every class needs a folder of its own with pictures in"
                " it, <class>/*.jpg or *.png"
            )
        if len(self.classes) < 2:
            raise UserError(
                f"--data {shown(folder)}: {shown(self.classes[0])} is the only class; there must be"
                " two or more, each in a folder of its own"
            )

    def _pictures_in(self, folder, above):
        """Returns the pictures of one class, a list of (folder, name)."""
        found, seen = [], set()
        ahead = [(str(folder), above)]
        while ahead:
            path, above = ahead.pop()
            here = _identity(path)
            if here in above:
                raise UserError(
                    f"--data {shown(self.folder)}: {shown(path)} is a link back to a folder that"
                    " it is in; pass a folder without such links"
                )
            if here in seen:  # another link to the same folder
                continue
            seen.add(here)
            above = {*above, here}
            for entry in _entries(path):
                self._look(len(found))
                if _is_folder(entry):
                    ahead.append((entry.path, above))
                elif entry.name.lower().endswith(EXTENSIONS):
                    if not _is_file(entry):  # a pipe would keep the reader waiting for ever
                        raise UserError(
                            f"{shown(entry.path)} is not a readable picture but a broken link or"
                            " a special file; mend or remove it"
                        )
                    found.append((path, entry.name))
            if path.count(os.sep) - str(folder).count(os.sep) > DEEPEST:
                raise UserError(f"{shown(path)} is too deep; {DEEPEST} folders are the most")
        return found

    def _look(self, found):
        self.looked += 1
        self.bar.update()
        found += len(self.paths)
        if self.looked > ENOUGH and found * 100 < self.looked:
            raise UserError(
                f"--data {shown(self.folder)}: this is no folder of pictures: of the first"
                f" {self.looked:,} files in it, {found:,} are pictures"
            )


def _entries(folder):
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError as error:
        raise UserError(f"{shown(folder)} cannot be read ({error.strerror})") from None


def _identity(folder):
    try:
        found = os.stat(folder)
    except OSError as error:
        raise UserError(f"{shown(folder)} cannot be read ({error.strerror})") from None
    return found.st_dev, found.st_ino


def _is_folder(entry):
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _is_file(entry):
    try:
        return entry.is_file()
    except OSError:
        return False
