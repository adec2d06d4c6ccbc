"""Families of language models that can be simulated: `python -m shared.evidence.families`.

Simulate a small model of each family, and store the outcomes for the table on page 11.
"""

import json
import tempfile
import tomllib
from pathlib import Path

import transformers

from shared.cli import Parser, UserError
from shared.predict.jobs import Wanted, call, run_jobs
from shared.predict.simulation import predict
from shared.records import scripts, stored
from shared.records.atomic_files import write_text
from shared.records.record import versions
from shared.records.scripts import ROOT
from shared.text.cli import TASK

TOLD = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
FAMILIES = TOLD["families"]
SCRIPTS = [name for name in scripts.stages() if name not in scripts.ladder()]
TOKENS = 32


def small(family):
    """Return the transformers.PreTrainedConfig of a family's small model."""
    sizes = {"vocab_size": 200, **TOLD["usual"], **FAMILIES[family]}
    return getattr(transformers, f"{sizes.pop('config')}Config")(**sizes)


def outcomes(script, families):
    """Simulate an update of a script with each family's small model: {family: None or error}."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for family in families:
            model = Path(folder) / family
            small(family).save_pretrained(model)
            wanted = Wanted("gpu", "full", str(model), max_length=TOKENS, updates=1)
            try:
                found[family] = call(predict, script, wanted) and None
            except UserError as error:
                found[family] = str(error).replace(str(model), family)
    return found


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    of_each = run_jobs([(outcomes, script, FAMILIES) for script in SCRIPTS])
    found = {"versions": versions(TASK), "outcomes": dict(zip(SCRIPTS, of_each))}
    write_text(stored.FAMILIES, json.dumps(found, indent=1) + "\n")
    print(stored.FAMILIES.relative_to(ROOT))


if __name__ == "__main__":
    main()
