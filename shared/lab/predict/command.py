"""`python -m shared predict`: run the predictions that a command line asks for, and print them."""

import json
import sys

import torch

from emulated_gpu.why import command as why
from shared.lab.predict import selection, tables
from shared.lab.predict.options import parse
from shared.lab.records.reading import by_model


def main(argv=None):
    """Run the command; return the records."""
    words = sys.argv[1:] if argv is None else argv
    if selection.names_own_script(words):
        sys.exit(why.main(words))
    args = parse(words)
    from shared.lab.predict import stages  # which takes seconds to import

    outcome = stages.predict(args)
    # In place of the script's own command, which would measure and not predict.
    records = [{**record, "command": args.command} for record in outcome.records]
    if args.json:
        print(json.dumps(records, indent=1))
    else:
        show(records, outcome, args)
    # At the end, so that what the other runs found is shown; and raised, for the exit code.
    if outcome.failed:
        raise outcome.failed
    return records


def show(records, outcome, args):
    """Print the tables of predictions, with the details below them, model by model."""
    how = f"with torch {torch.__version__}; kernels did nothing"
    if args.expandable:
        how = f"with expandable segments, {how}"
    for group in by_model(records):
        tables.show(group, args.card, how)
        if lines := outcome.details(group):
            print("\n" + "\n".join(lines))
