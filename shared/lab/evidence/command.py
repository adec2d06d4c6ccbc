"""Make a group of records anew: python -m shared records GROUP [OPTION...]"""

import importlib
import sys

from shared.errors import UserError

# For each group: its line in --help, and the module with its main().
GROUPS = {
    "predicted": ("all predictions on the pages", "evidence.predicted"),
    "variants": ("stages with other settings", "evidence.variants"),
    "lost_updates": ("what bf16 weights lose", "evidence.lost_updates"),
    "on_cards": ("cards on which each stage fits", "evidence.on_cards"),
    "scale": ("large models on many GPUs", "evidence.scale"),
    "long_context": ("texts of up to a million tokens", "evidence.long_context"),
    "pretrain": ("the weights of the tiny model", "evidence.pretrain"),
    "published": ("programs of others, what they measured", "proof.published.command"),
    "traces": ("allocator traces of others, event by event", "proof.traces.command"),
    "game_sheet": ("known solutions of the game, judged", "evidence.game_sheet"),
    "exercises": ("answers of the exercises", "evidence.exercises"),
    "misconceptions": ("figures of the misconceptions", "evidence.misconceptions"),
    "road": ("one side road, named after it; also fills the pages", "lessons.road"),
    "strips": ("how busy the GPU is during an update", "evidence.strips"),
}


def main():
    group = sys.argv.pop(1) if len(sys.argv) > 1 else "--help"
    if group in ("-h", "--help"):
        lines = [f"  {name:15} {what}" for name, (what, _) in GROUPS.items()]
        print(__doc__, "", "groups:", *lines, sep="\n")
        return None
    if group not in GROUPS:
        raise UserError(f"there is no group {group} (see --help)")
    sys.argv[0] += f" {group}"
    return importlib.import_module(f"shared.lab.{GROUPS[group][1]}").main()
