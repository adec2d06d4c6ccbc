"""Measures on a GPU, in a process of its own, which the command starts; see command.py.

The command itself must not use the GPU: its own CUDA context would be measured, too.
"""

import json
from pathlib import Path

from shared.cli import Parser, run
from shared.common.writing import write_text
from shared.evidence.calibrate import context, operations


def main(argv=None):
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="for what was measured, as JSON")
    parser.add_argument("--script", metavar="NAME", help="measure a script's operations")
    parser.add_argument(
        "--snapshot", type=Path, metavar="FILE", help="for a history of allocations"
    )
    args, options = parser.parse_known_args(argv)
    if args.script:
        found = operations.on_gpu(args.script, options, args.snapshot)
    else:
        found = context.measure()
    write_text(args.file, json.dumps(found))


if __name__ == "__main__":
    run(main)
