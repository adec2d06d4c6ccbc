"""Runs of a script, unedited, each in a process with an emulated GPU; and what they tell."""

import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from emulated_gpu import cards, launch
from emulated_gpu.build import BuildError
from emulated_gpu.stand_ins import images
from emulated_gpu.texts import UserError
from emulated_gpu.why import answer, fit, pace
from emulated_gpu.why.settings import Findings, Settings
from emulated_gpu.why.source import Source

INSIDE = [sys.executable, "-m", "emulated_gpu.why.inside"]
WITHOUT_COMPILER = {"TORCHDYNAMO_DISABLE": "1"}
RANKS_DIFFER = 0.01  # of the memory of rank 0: a smaller difference is none


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer about a script."""

    text: list  # lines
    record: dict
    moments: dict | None  # the result of history.condensed(), where it was asked for
    interrupted: bool = False  # by Ctrl-C: it is of what was known then


def ask(args):
    """Run a script as command.parse() has returned it; return an Answer.

    Where the card is too small, or only just large enough, the script runs again on a card with
    plenty of memory: the figures are those of a run with room.

    Raises:
        UserError: no GPU can be emulated here, or the script was killed.
        SystemExit: the script has failed; it has said why.
    """
    began = time.perf_counter()
    findings = first = find(args, args.card_gb, is_first=True)
    too_small = shortage(findings)
    eager_gb = None
    ranks = []
    interrupted = first.interrupted
    try:
        if interrupted:
            raise KeyboardInterrupt
        if too_small:  # where memory is scarce, the peaks are those of the card, not of the script
            findings = find(args, fit.PLENTY_GB)
        findings, rank, ranks = compared_ranks(findings, args)
        if not too_small and fit.needs(findings.record) > args.card_gb:
            too_small = "so it does not fit"  # where several ranks use it, or evaluation goes on
        if not too_small and fit.outgrows(findings.record, args.card_gb):
            too_small = f"and it fits {fit.TIGHTLY}"
        if findings.compile_seconds:
            eager = find(args, fit.PLENTY_GB, WITHOUT_COMPILER, rank=rank)
            eager_gb = eager.record["train"]["device_peak_gb"]
        if findings.record["kept_by"]:
            # Of the same rank: the difference of two ranks is not one of two hosts.
            both = [find(args, fit.PLENTY_GB, host_us=us, rank=rank) for us in launch.BOUNDS_US]
            pace.add(findings.record, [other.record for other in both])
    except KeyboardInterrupt:
        if not findings.record:  # the first run has ended for want of memory
            raise
        interrupted = True  # what is known so far is shown
    findings.record["seconds"] = time.perf_counter() - began
    text = answer.lines(findings, too_small, eager_gb, ranks, args) + answer.scarce(first)
    return Answer(text, findings.record, findings.moments, interrupted)


def compared_ranks(findings, args):
    """Run the last of several ranks, too; return the Findings of the rank that needs more memory.

    Return that rank as well, and lines about both, none if there are only two that need the same.
    """
    last = (args.devices or 1) - 1
    if not last:
        return findings, 0, []
    others = ""
    if last > 1:
        others = f"; of the ranks between them, emulated-gpu run --devices {last + 1} torchrun"
    # On a card with room, like the figures of rank 0; a rank may choose its card by this variable.
    local = {"LOCAL_RANK": str(last)} if last < launch.MOST else {}
    ended = run(args, fit.PLENTY_GB, local, rank=last)
    if local and ended.code:  # it does not make the card that it has chosen the current one
        ended = run(args, fit.PLENTY_GB, rank=last)
    elif local and ended.cards == ["0"] and ended.findings and not ended.findings.hides_cards:
        findings.record["ranks_on_card"] = args.devices
        return findings, 0, [f"All {args.devices} ranks use cuda:0, and need that together"]
    other = ended.findings
    if not other or not other.record:
        return findings, 0, [f"Rank {last} was run, too, and ended with exit code {ended.code}"]
    gb = [fit.needs(each.record) for each in (findings, other)]
    if abs(gb[1] - gb[0]) < RANKS_DIFFER * gb[0]:
        return findings, 0, [f"Rank 0 and rank {last} need the same{others}"] if others else []
    line = f"Ranks differ: a card needs {gb[0]:.2f} GB for rank 0, {gb[1]:.2f} for rank {last}"
    larger, rank = (other, last) if gb[1] > gb[0] else (findings, 0)
    return larger, rank, [f"{line}; the figures are of the larger{others}"]


def shortage(findings):
    """Return a text on the lack of memory of a script on its card, None if there was room."""
    if findings.out_of_memory_at:
        return f"so it does not fit: out of memory in {findings.out_of_memory_at}"
    if findings.errors:
        return "but an allocation failed, and it went on"
    if findings.retries:
        return f"and it fits {fit.TIGHTLY}"
    return None


@dataclasses.dataclass(frozen=True)
class Ended:
    """A process that has ended; `findings` is None if it failed, `log` its output if not shown."""

    code: int  # negative: the signal that killed it
    findings: Findings | None
    log: str
    cards: list  # numbers of the GPUs on which PyTorch has reserved memory


def find(args, card_gb, variables=None, is_first=False, host_us=launch.HOST_US, rank=0):
    """Run a script on a card with so many GB, beside a host of that pace; return its Findings.

    The output of the first run is shown, and that run writes the snapshot.
    """
    ended = run(args, card_gb, variables, is_first, host_us, rank)
    if ended.code < 0:
        name = signal.Signals(-ended.code).name
        hint = "; has the host enough memory?" if name == "SIGKILL" else ""
        raise UserError(f"{args.script} was ended by {name}{hint}")
    if ended.code:
        print(ended.log, end="", file=sys.stderr)
    if ended.code or not ended.findings:
        sys.exit(ended.code or 1)
    return ended.findings


def run(args, card_gb, variables=None, is_first=False, host_us=launch.HOST_US, rank=0):
    """Run a script as find() does, with these `variables` in its environment; return an Ended."""
    devices = args.devices or 1
    how = {"host_us": host_us, "alone": bool(args.devices), "rank": rank, "memory_gb": card_gb}
    try:
        environment = launch.environment(
            args.card, devices, context_gb=cards.set_aside(devices), **how
        )
    except BuildError as error:
        raise UserError(str(error)) from None
    environment["WANDB_MODE"] = "disabled"  # trackers would wait for an answer
    environment |= {images.SHAPE: args.input} if args.input else {}
    environment |= variables or {}
    with tempfile.TemporaryDirectory(prefix="emulated-") as folder:
        findings_file, file, log = (Path(folder, name) for name in ("findings", "settings", "log"))
        Settings(
            script=str(args.script.resolve()),
            module=args.module,
            arguments=args.arguments,
            findings=str(findings_file),
            card=next(key for key, card in cards.CARDS.items() if card is args.card),
            devices=devices,
            updates=args.updates,
            with_timeline=bool(args.html),
        ).write(file)
        with log.open("w") as log_file:
            output = {} if is_first else {"stdout": log_file, "stderr": subprocess.STDOUT}
            snapshot = args.snapshot if is_first else None
            try:
                code, reports = launch.run([*INSIDE, str(file)], environment, snapshot, **output)
            except launch.EmulatorError as error:
                raise UserError(str(error)) from None
        findings = Findings.read(findings_file) if findings_file.exists() else None
        if findings:
            _add_notes(findings, reports, args.script)
            if findings.interrupted and not is_first:
                raise KeyboardInterrupt  # its figures are of a part of the script
        used = [*reports[0]["peaks"]] if reports else []
        return Ended(code, findings, log.read_text(errors="replace"), used)


def _add_notes(findings, reports, script):
    """Add the emulator's notes on the script's process to its record, those of libraries apart."""
    if not findings.record or not reports:
        return
    findings.record["groups"] = reports[0]["groups"]
    notes = findings.record["notes"]
    source = Source(script.resolve())
    for line, what in reports[0]["lines"].items():
        where = notes if source.contains(os.path.abspath(line)) else findings.of_libraries
        where.append(f"{line} reads {what} that no kernel computed")
    for name in reports[0]["called"]:
        findings.of_libraries.append(f"{name}: its result is an assumption")
