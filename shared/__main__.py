"""The door to all commands: python -m shared COMMAND [OPTION...]

From another folder, name this one: python PATH/TO/shared COMMAND [OPTION...]
"""

import contextlib
import importlib
import os
import sys
from pathlib import Path

# For each command: its line in --help, and the module with its main(). A package that holds
# one command has it in command.py.
COMMANDS = {
    "measure and predict": {
        "ladder": ("run scripts here, print what each saves", "lab.ladder.command"),
        "predict": ("a script's memory on an emulated GPU, yours too", "lab.predict.command"),
    },
    "learn and teach": {
        "check": ("is a learner's stage right? its diff, losses and bytes", "lab.grading.check"),
        "game": ("Make it fit: six scripts to mend", "lab.game.command"),
        "report": ("write the workshop page", "lab.report.command"),
    },
    "contribute": {
        "calibrate": ("measure on your GPU; one file to send", "lab.evidence.calibrate.command"),
        "lessons": ("write the generated parts of the pages", "lab.lessons.pages"),
        "records": ("make a group of records anew; alone, list them", "lab.evidence.command"),
    },
}


def help_text():
    """Return a line for each command."""
    lines = [__doc__.strip()]
    for heading, commands in COMMANDS.items():
        lines += ["", f"{heading}:"]
        lines += [f"  {name:15} {what}" for name, (what, _) in commands.items()]
    lines += ["", "--help after a command lists its options."]
    return "\n".join([*lines, "python -m emulated_gpu runs any PyTorch program on emulated GPUs."])


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        with contextlib.suppress(BrokenPipeError):  # --help | head
            print(help_text(), flush=True)
            return 0
        # Python, too, writes at its end what a closed pipe has not taken.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    modules = {key: text for commands in COMMANDS.values() for key, (_, text) in commands.items()}
    if name not in modules:
        print(f"\nshared: there is no command {name} (see --help)", file=sys.stderr)
        return 2
    if name == "ladder":  # the first command of most readers
        print("- starting: importing PyTorch", flush=True)  # which takes some seconds
        if sys.platform == "linux" and not {"-h", "--help"} & {*sys.argv}:
            # The server of its processes imports the same, meanwhile.
            importlib.import_module("shared.lab.records.running").forks()
    sys.argv[:2] = [f"python -m shared {name}"]
    try:
        result = importlib.import_module(f"shared.{modules[name]}").main()
    except (Exception, KeyboardInterrupt):
        importlib.import_module("shared.run.errors").explain(*sys.exc_info())
    return result if isinstance(result, int) else 0


if __name__ == "__main__":  # a child of multiprocessing imports this module, too
    if not __package__:  # started as a folder
        sys.path[0] = str(Path(__file__).resolve().parents[1])
    sys.exit(main())
