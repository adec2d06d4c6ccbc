"""`python -m shared predict`: run the predictions that a command line asks for, and print them."""

import json
import sys

import torch

from shared.lab.predict import tables
from shared.lab.predict.options import parse
from shared.lab.records.reading import by_model


def main(argv=None):
    """Run the command; return the records."""
    args = parse(argv)
    # Imported here: the predictor of stages takes seconds to import, and a user's script does not
    # need it.
    if args.user_script:
        from shared.lab.predict import own_script as predictor
    else:
        from shared.lab.predict import stages as predictor
    outcome = predictor.predict(args)
    # In place of the script's own command, which would measure and not predict.
    records = [{**record, "command": args.command} for record in outcome.records]
    if args.json:
        print(json.dumps(records, indent=1))
    else:
        show(records, outcome, args)
    # After the figures, which a picture that cannot be drawn must not take along.
    if args.timeline:
        draw(outcome.moments, args)
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
        # Of one script, a few lines say what matters.
        if not args.user_script or args.details:
            tables.show(group, args.card, how)
        if lines := outcome.details(group):
            print("\n" + "\n".join(lines))


def draw(moments, args):
    """Draw what holds the memory during one update, and say where the pictures are."""
    if not moments:
        print("- nothing is drawn: there are not two updates that allocate memory", file=sys.stderr)
        return
    from shared.lab.predict import timeline  # matplotlib takes a second to import

    timeline.draw_all(moments, args.timeline)
    if not args.json:
        print(f"\n{args.timeline}: what holds the memory during one update")
