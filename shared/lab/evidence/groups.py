"""Groups of records that are runs of cases: what runs each case, where, and the file of records."""

import dataclasses
import resource
from collections.abc import Callable
from pathlib import Path

from shared.lab.evidence import lost_updates, on_cards, strips
from shared.lab.predict import cases
from shared.lab.predict.jobs import WORKERS
from shared.lab.predict.stage import predict
from shared.lab.records import stored

UPDATES = 3  # some mistakes show from the third update on


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs of cases that are stored in a file, in their order."""

    file: Path
    run: Callable  # takes a case, returns its record; in a process of its own
    cases: tuple
    emulated: bool = True  # whether the processes have emulated GPUs, else none
    workers: int = WORKERS  # processes side by side

    @property
    def jobs(self):
        """The runs, for run_jobs()."""
        return [(self.run, case) for case in self.cases]

    @property
    def records(self):
        """The stored records, [(case, record), ...]; a case that has none is an error."""
        return [*zip(self.cases, stored.read(self.file), strict=True)]


def emulate(case):
    """Return the record of a case on an emulated GPU."""
    return predict(case.changed_script, case.settings)


def measure(case):
    """Return the record of a case's run with the tiny model."""
    return case.changed_script.load().main(["--preset", "tiny", "--max-steps", str(UPDATES)])


def emulate_here(case):
    """Return the record of a case, with the memory in GB that its process took on this host."""
    record = emulate(case)
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # Linux counts in KiB
    return {**record, "group": case.group, "here_gb": kib * 1024 / 1e9}


def emulate_techniques(case):
    """Return the record of a case, with the names of its edits."""
    return {**emulate(case), "techniques": case.edits}


def variants():
    """Return the stored predictions of variants at full size, {title: record}."""
    # Made by "records predicted"; the group "variants" of every() has the tiny, measured ones.
    titles = (case.title for case in cases.of("variants"))
    # In order, since a record has its script but no title; strict finds what is stale.
    return dict(zip(titles, stored.predicted(stored.VARIANTS), strict=True))


def every():
    """Return the groups, {name: Group}."""
    tiny = tuple(case for case in cases.of("variants") if case.tiny)
    lost = cases.of("lost_updates")
    return {
        "variants": Group(stored.TINY_VARIANTS, measure, tiny, emulated=False),
        "lost_updates": Group(stored.LOST_UPDATES, lost_updates.train, lost, emulated=False),
        # They run commands, which emulate GPUs themselves.
        "on_cards": Group(stored.ON_CARDS, on_cards.pair, cases.of("on_cards"), emulated=False),
        # One after the other, so that the seconds are those of a run by itself.
        "scale": Group(stored.SCALE, emulate_here, cases.of("scale"), workers=1),
        "long_context": Group(stored.LONG_CONTEXT, emulate_techniques, cases.of("long_context")),
        "strips": Group(stored.STRIPS, strips.work, cases.of("strips")),
    }
