"""The files of one GPU's results: what was measured, beside what was predicted, and operations."""

import json
import re
import statistics

from shared.cli import UserError
from shared.common.writing import append, write_text
from shared.records.record import by_script, read, read_list


def slug(device):
    """Returns a device's name as part of a file's name: "NVIDIA H200" is "nvidia-h200"."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") or "gpu"


class Store:
    """The results of one device in a folder.

    There are records of measurements, in one file for each number of GPUs; predictions, each with
    its measurement, as `python -m shared.predict --check --json` prints them; and what was found
    about operations, the CUDA context and the tests.
    """

    def __init__(self, folder, device):
        """Reads what is there.

        Args:
            folder: pathlib.Path, of a folder that is there.
            device: the name of the GPU; None for a CPU.

        Raises:
            UserError: a file is damaged.
        """
        self.folder, self.slug = folder, slug(device) if device else "cpu"
        self.checked_file = folder / f"{self.slug}-checked.json"
        self.operations_file = folder / f"{self.slug}-operations.json"
        self.checked = self._read(self.checked_file, read_list, [])
        self.about = self._read(self.operations_file, lambda file: json.loads(file.read_text()), {})
        self._measured = {}

    def _read(self, file, reader, nothing):
        try:
            found = reader(file) if file.exists() else nothing
            if type(found) is not type(nothing):
                raise TypeError
        except (ValueError, TypeError, KeyError, AttributeError):
            raise UserError(f"{file} is damaged; move it away, to begin it anew") from None
        return found

    def measured_file(self, n):
        """Returns the file of the measurements with n GPUs."""
        return self.folder / (f"{self.slug}.jsonl" if n == 1 else f"{self.slug}-{n}-gpus.jsonl")

    def measured(self, n):
        """Returns the measurements with n GPUs, {script: the last record}."""
        if n not in self._measured:
            self._measured[n] = by_script(read(self.measured_file(n))[0])
        return self._measured[n]

    def add(self, record, n):
        """Adds a measurement with n GPUs, which is safe on disk then."""
        append(self.measured_file(n), record)
        self.measured(n)[record["script"]] = record

    def check(self, predictions):
        """Adds predictions, each with its measurement, in place of those of the same scripts."""
        new = {self._key(p): p for p in predictions}
        self.checked = [*({self._key(p): p for p in self.checked} | new).values()]
        write_text(self.checked_file, json.dumps(self.checked, indent=1) + "\n")

    @staticmethod
    def _key(prediction):
        return prediction["script"], prediction["world_size"]

    def is_checked(self, record, mark):
        """Tells whether there is a prediction for a measurement that was made with this code."""
        same = (p for p in self.checked if self._key(p) == self._key(record))
        return any(p.get("fingerprint") == mark for p in same)

    def tell(self, **found):
        """Adds what was found about operations, the context and the tests."""
        self.about.update(found)
        write_text(self.operations_file, json.dumps(self.about, indent=1) + "\n")

    def typical_seconds(self, otherwise):
        """Returns how long a script takes on this device, from those that were measured."""
        records = [r for found in self._measured.values() for r in found.values()]
        known = [r["seconds"] for r in records if r.get("seconds")]
        return statistics.median(known) if known else otherwise
