"""Run published scripts on the simulated GPU, unedited."""

import contextlib
import io
import json
import shlex
import subprocess
from pathlib import Path

from transformers import GPT2Config

from shared.cli import UserError
from shared.evidence.published.pretend import adam_of_2023
from shared.text.tokenizer import new_tokenizer


def name(row):
    """Return the name of a row's script: its repository, its file and its arguments."""
    return shlex.join([f"{row['folder']}/{row['script']}", *row.get("args", [])])


def fetch(source, folder):
    """Fetch the repository of a source, unless the folder has it, and prepare its data."""
    there = folder / source["folder"]
    if not there.exists():
        git = ["git", "-c", "advice.detachedHead=false"]
        for command in (
            [*git, "clone", "-q", "--filter=blob:none", source["repository"], there],
            [*git, "-C", there, "checkout", "-q", source["commit"]],
        ):
            if subprocess.run(command).returncode:
                raise UserError(f"{source['repository']} cannot be fetched into {there}")
    with contextlib.chdir(there):
        exec(source.get("prepare", ""))


def gpt2(folder):
    """Write into a folder what scripts would download: gpt2, without weights, and texts."""
    lines = [f"the quick brown fox jumps over the lazy dog {n} " * 60 for n in range(2000)]
    tokenizer = new_tokenizer(lines, 2000)
    tokenizer.eos_token = tokenizer.sep_token
    tokenizer.save_pretrained(f"{folder}/gpt2")
    GPT2Config(architectures=["GPT2LMHeadModel"]).save_pretrained(f"{folder}/gpt2")
    texts = Path(folder) / "texts"
    texts.mkdir(exist_ok=True)
    texts.joinpath("train.jsonl").write_text("\n".join(json.dumps({"text": x}) for x in lines))


def simulate(row, folder):
    """Return the memory of a row's script, {"peak": figures}, or {"peak": {"why": error}}.

    Run it in a process of its own. The script's output is discarded.
    """
    # Imported here, because it changes PyTorch.
    from shared.predict.own import command

    devices = ["--devices", str(row["devices"])] if row["devices"] > 1 else []
    options = ["--card", row["card"], *devices]
    args = command.make_parser().parse_args([str(folder / row["folder"] / row["script"]), *options])
    args.torch, args.command = tuple(row["torch"]), name(row)
    then = adam_of_2023() if row.get("old_adam") else contextlib.nullcontext()
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), then:
        try:
            _, found = command.predict(args, row.get("args", []))
        except UserError as error:
            return {"peak": {"why": str(error)}}
        except SystemExit:  # after its traceback
            return {"peak": {"why": said.getvalue().strip().rpartition("\n")[2]}}
    train = found["train"]
    figures = {
        "allocated_gb": train["device_peak_gb"],
        "reserved_gb": train["device_reserved_gb"],
        "breakdown_gb": train["breakdown_gb"],
        "bound": found["bound"],
        "notes": found["notes"],
        "model": found["model"],
        "inputs": found["inputs"],
    }
    return {"peak": figures}
