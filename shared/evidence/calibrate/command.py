"""Compare measurements on this computer's GPU with predictions.

It runs the scripts for a few updates on noise, from random weights, and measures the workspaces of
single operations and the CUDA context. An interrupted command resumes when repeated. Without a GPU
it does the same with the tiny preset, as a test of itself.
"""

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import torch

from shared.cli import Parser, UserError, positive
from shared.evidence.calibrate import operations, report
from shared.predict.jobs import Wanted, run_jobs
from shared.records import scripts
from shared.records.atomic_files import write_text
from shared.records.record import git_commit
from shared.records.views import RESULTS, aligned, read, read_list

UPDATES = 10  # of each script: the first three are not timed
# Scripts with measured operations: fp32; bf16; few images at once, for small workspaces; text.
WATCHED = ("01_baseline/train", "03_bf16/train", "05_grad_accum/train", "11_llm/before")
MOST_OPERATIONS = 25  # rows of the table; the file has all operations


def in_child(log, *arguments):
    """Return the results of child.py with these arguments; its output goes to a log."""
    found = log.with_suffix(".json")
    command = [sys.executable, "-m", "shared.evidence.calibrate.child", str(found), *arguments]
    with log.open("w") as out:
        if subprocess.run(command, stdout=out, stderr=out).returncode:
            raise UserError(f"{log.read_text(errors='replace').splitlines()[-1]} ({log})")
    return json.loads(found.read_text())


def watched(name, preset, log):
    """Return the results of operations.Watch for a script, on the GPU or on a simulated one."""
    model = scripts.get(name).load().TASK.presets[preset]["model"]
    if preset == "full":
        options = ["--preset", preset, "--model", model, "--data", "fake", "--no-pretrained"]
        return in_child(log, name, *options)
    return run_jobs([(operations.simulated, name, Wanted("gpu", preset, model))])[0]


def main(argv=None):
    parser = Parser(description=__doc__)
    scripts.add_stages(parser)
    out = "folder for the ladder's files (default: out/calibrate)"
    parser.add_argument("--devices", type=positive, metavar="N", help="GPUs, from 08 on")
    parser.add_argument("--out", type=Path, default=Path("out/calibrate"), metavar="DIR", help=out)
    args = parser.parse_args(argv)
    names = scripts.selected(args) or scripts.stages()
    names = scripts.with_side_roads(names) if args.side_roads else names
    logs = args.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    preset = "full" if torch.cuda.is_available() else "tiny"
    card = in_child(logs / "context.log") if preset == "full" else None
    slug = re.sub(r"[^a-z0-9]+", "-", card["name"].lower()) if card else "cpu"
    several = f"-{args.devices}-gpus" if args.devices else ""
    store = (RESULTS if card else args.out) / f"{slug}{several}-checked.json"

    ladder = [sys.executable, "-m", "shared.ladder", *names, "--preset", preset, "--data", "fake"]
    ladder += ["--no-pretrained", "--max-steps", str(UPDATES), "--out", str(args.out)]
    subprocess.run([*ladder, *(["--devices", str(args.devices)] if args.devices else [])])
    measured = {(r["script"], r["world_size"]): r for r in read(args.out / "ladder.jsonl")[0]}
    predicted = read_list(args.out / "predicted.json") if measured else []
    checked = [{**p, "measured": measured[p["script"], p["world_size"]]} for p in predicted]
    write_text(store, json.dumps(checked, indent=1) + "\n")

    about = {"torch": torch.__version__, "git_commit": git_commit(), "context": card}
    found = about["operations"] = {}
    for name in (name for name in WATCHED if name in names):
        try:
            rows = watched(name, preset, logs / f"{name.replace('/', '_')}-operations.log")
            found[name] = {"rows": rows}
        except UserError as error:  # such as a script that does not fit on this GPU
            print(f"- {name}, operations: {error}")
    details = store.with_name(store.name.replace("-checked", "-operations"))
    write_text(details, json.dumps(about, indent=1) + "\n")
    if card:
        print(f"\n- {card['name']}: {report.context(card)}")
    if found:
        simulated = "" if card else ", on a simulated GPU, as a test"
        print(f"\nWorkspaces that operations allocate besides their results{simulated}:\n")
        heading, *rows = report.table(report.compared(found)[:MOST_OPERATIONS])
        print(*aligned(heading, rows), sep="\n")
        print(f"\n- {report.formulas(found)}")
    with tarfile.open(args.out / f"{store.stem}.tar.gz", "w:gz") as tar:
        for file in (store, details, args.out / "ladder.jsonl", logs):
            tar.add(file, f"{store.stem}/{file.name}")
    print(f"- {tar.name}: {store}, {details}, records and logs, in one file to send")
