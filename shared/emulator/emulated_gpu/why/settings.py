"""Settings for the process with the emulated GPU that runs a script, and findings from it."""

import dataclasses
import json
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of one run of a script, which go through a JSON file to inside.py."""

    script: str  # absolute path
    module: str | None  # its name, as for python -m, if it was named so
    arguments: list  # of the script
    findings: str  # path of the JSON file to write
    card: str  # key of cards.CARDS
    devices: int = 1
    updates: int = 3  # to watch
    with_timeline: bool = False

    def write(self, file):
        """Write the settings into a file, a Path, as JSON."""
        file.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, file):
        """Return the Settings in a file."""
        return cls(**json.loads(Path(file).read_text()))


@dataclasses.dataclass(frozen=True)
class Findings:
    """The results of a run of a script, which come back as a JSON file.

    Where it ran out of memory, `out_of_memory_at` is the line, FILE:LINE, and the rest is missing.
    """

    record: dict | None = None
    out_of_memory_at: str | None = None
    moments: dict | None = None  # the result of history.condensed(), if Settings ask for it
    errors: int = 0  # allocations that failed, and that the script has caught
    retries: int = 0  # allocations for which PyTorch gave idle memory back
    compile_seconds: float = 0  # of torch.compile()
    trained: bool = True  # whether a module was called in training mode
    has_convolutions: bool = False
    of_libraries: list = dataclasses.field(default_factory=list)  # notes that are for --details
    hides_cards: bool = False  # whether the script has hidden GPUs from itself
    interrupted: bool = False  # by Ctrl-C
    grows: str | None = None  # "allocated" or "reserved" memory, to which each update adds ...
    grows_gb: float = 0  # ... so much
    grows_at: str | None = None  # FILE:LINE that allocated most of it

    def write(self, file):
        """Write the findings into a file as JSON."""
        Path(file).write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, file):
        """Return the Findings in a file."""
        return cls(**json.loads(Path(file).read_text()))
