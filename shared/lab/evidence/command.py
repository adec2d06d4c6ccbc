"""Make a group of records anew: python -m shared records GROUP [OPTION...]"""

import importlib
import sys

from shared.run.errors import UserError

# For each group, a module of this folder with main(), or of another one: its line in --help.
GROUPS = {
    "predicted": "all predictions on the pages",
    "variants": "stages with other settings",
    "lost_updates": "what bf16 weights lose",
    "on_cards": "cards on which each stage fits",
    "scale": "large models on many GPUs",
    "long_context": "texts of up to a million tokens",
    "pretrain": "the weights of the tiny model",
    "game_sheet": "known solutions of the game, judged",
    "exercises": "answers of the exercises",
    "misconceptions": "figures of the misconceptions",
    "road": "one side road, named after it; also fills the pages",
    "strips": "how busy the GPU is during an update",
}
ELSEWHERE = {"road": "lessons"}


def main():
    group = sys.argv.pop(1) if len(sys.argv) > 1 else "--help"
    if group in ("-h", "--help"):
        lines = [f"  {name:15} {what}" for name, what in GROUPS.items()]
        print(__doc__, "", "groups:", *lines, sep="\n")
        return None
    if group not in GROUPS:
        raise UserError(f"there is no group {group} (see --help)")
    sys.argv[0] += f" {group}"
    folder = ELSEWHERE.get(group, "evidence")
    return importlib.import_module(f"shared.lab.{folder}.{group}").main()
