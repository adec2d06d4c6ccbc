"""Make a group of records anew: python -m shared records GROUP [OPTION...]"""

import importlib
import sys

from shared.run.cli import Parser
from shared.run.errors import UserError

# For each group: its line in --help, and its module with main(); "" for one of groups.py.
GROUPS = {
    "predicted": ("all predictions on the pages", "evidence.predicted"),
    "variants": ("stages with other settings", ""),
    "lost_updates": ("what bf16 weights lose", ""),
    "on_cards": ("cards on which each stage fits", ""),
    "scale": ("large models on many GPUs", ""),
    "long_context": ("texts of up to a million tokens", ""),
    "pretrain": ("the weights of the tiny model", "evidence.pretrain"),
    "game_sheet": ("known solutions of the game, judged", "evidence.game_sheet"),
    "exercises": ("answers of the exercises", "evidence.exercises"),
    "misconceptions": ("figures of the misconceptions", "evidence.by_command"),
    "road": ("one side road, named after it; also fills the pages", "lessons.road"),
    "strips": ("how busy the GPU is during an update", ""),
}


def main():
    name = sys.argv.pop(1) if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        lines = [f"  {group:15} {what}" for group, (what, _) in GROUPS.items()]
        print(__doc__, "", "groups:", *lines, sep="\n")
        return None
    if name not in GROUPS:
        raise UserError(f"there is no group {name} (see --help)")
    sys.argv[0] += f" {name}"
    what, module = GROUPS[name]
    if module:
        return importlib.import_module(f"shared.lab.{module}").main()
    Parser(description=what).parse_args()
    return make(name)


def make(name):
    """Run the cases of a group of groups.py, and store the records."""
    from shared.lab.evidence import groups  # which takes seconds to import
    from shared.lab.predict.jobs import run_jobs
    from shared.lab.records import stored

    group = groups.every()[name]
    records = run_jobs(group.jobs, group.emulated, group.workers)
    command = f"python -m shared records {name}"
    stored.write(group.file, [{**record, "command": command} for record in records])
    print(f"{group.file.name}: {len(records)} records")
