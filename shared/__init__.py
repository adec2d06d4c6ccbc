"""The modules that stages import, and two folders: lab/, the commands; emulator/, a package.

README.md in this folder is the map. Nothing in here is specific to one stage.
"""

import sys

# Until the next release: a command that was called otherwise says what it is called now.
MOVED = ("ladder", "predict", "lessons", "report", "evidence", "emulator")
RENAMED = {"shared.emulator": "emulated_gpu", "shared.lessons.fit": "shared game"}

if sys.argv[0] == "-m":  # Python looks for the module of `python -m`
    module = sys.orig_argv[sys.orig_argv.index("-m") + 1]
    if module.startswith(tuple(f"shared.{name}" for name in MOVED)):
        now = RENAMED.get(module) or f"shared {module.rpartition('.')[2]}"
        print(f"python -m {module} is called python -m {now} now", file=sys.stderr)
        sys.exit(2)
