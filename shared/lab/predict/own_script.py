"""Predictions of a script of the user's, unedited: it runs in a process with an emulated GPU."""

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
from shared.errors import UserError
from shared.lab.predict import pace, tables, times
from shared.lab.predict.advice import advice
from shared.lab.predict.outcome import Outcome
from shared.lab.predict.own.settings import Findings, Settings
from shared.lab.records import formats
from shared.lab.records.reading import setting
from shared.record import ROOT

INSIDE = [sys.executable, "-m", "shared.lab.predict.inside"]
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
WITHOUT_COMPILER = {"TORCHDYNAMO_DISABLE": "1"}
SMALL = 0.01  # of the peak: what is less is not shown without --details
NOTES = 3  # of values and results that are assumed, which are shown without --details


def predict(args):
    """Predict a script as options.parse() has returned it; return an Outcome.

    Where the card is too small, or only just large enough, the script runs again on one that has
    plenty: the figures are those of a run with room.

    Raises:
        UserError: no GPU can be emulated here, or the script was killed.
        SystemExit: the script has failed; it has said why.
    """
    began = time.perf_counter()
    findings = first = find(args, args.fits_gb or args.card.gb, is_first=True)
    too_small = shortage(findings)
    if too_small:  # where memory is scarce, the peaks are those of the card, not of the script
        findings = find(args, tables.PLENTY_GB)
    eager_gb = None
    if findings.compile_seconds:
        eager = find(args, tables.PLENTY_GB, WITHOUT_COMPILER)
        eager_gb = eager.record["train"]["device_peak_gb"]
    record = findings.record
    if record["kept_by"]:
        others = [find(args, tables.PLENTY_GB, host_us=us) for us in launch.BOUNDS_US]
        pace.add(record, [other.record for other in others])
    record["seconds"] = time.perf_counter() - began
    record["command"] = args.command
    moments = []
    if findings.moments:
        moments = [{**findings.moments, "record": record}]
    text = [*lines(findings, too_small, eager_gb, args), *scarce(first)]
    return Outcome([record], moments, lambda _: text)


def shortage(findings):
    """Return how a script lacked memory on its card, None if there was room."""
    if findings.out_of_memory_at:
        return f"it does not fit: out of memory in {findings.out_of_memory_at}"
    if findings.errors:
        return "an allocation failed, and the script went on"
    if findings.retries:
        return f"it fits {tables.TIGHTLY}"
    return None


@dataclasses.dataclass(frozen=True)
class Ended:
    """A process that has ended; `findings` are None if it failed, `log` what it did not show."""

    code: int  # negative: the signal that killed it
    findings: Findings | None
    log: str


def find(args, card_gb, variables=None, is_first=False, host_us=launch.HOST_US):
    """Run a script on a card with so many GB, beside a host of that pace; return its Findings.

    The first run is shown, and writes the snapshot; what others print is kept back.
    """
    run = Run(args, card_gb, host_us, variables or {}, is_first and args.snapshot)
    ended = run.start(is_shown=is_first)
    if ended.code < 0:
        name = signal.Signals(-ended.code).name
        hint = "; has the host enough memory?" if name == "SIGKILL" else ""
        raise UserError(f"{args.user_script} was ended by {name}{hint}")
    if ended.code:
        print(ended.log, end="", file=sys.stderr)
    if ended.code or not ended.findings:
        sys.exit(ended.code or 1)
    return ended.findings


class Run:
    """How to run a script on a card with so many GB, beside a host of that pace."""

    def __init__(self, args, card_gb, host_us, variables, snapshot):
        """Prepare the environment; `variables` are added to it."""
        self._args = args
        self._snapshot = snapshot
        devices = args.devices or 1
        try:
            self._variables = launch.environment(
                args.card,
                devices,
                host_us=host_us,
                alone=bool(args.devices),
                memory_gb=card_gb,
                context_gb=tables.set_aside(devices),
            )
        except BuildError as error:
            raise UserError(str(error)) from None
        self._variables["WANDB_MODE"] = "disabled"  # trackers would wait for an answer
        self._variables |= variables
        if args.expandable:
            self._variables |= EXPANDABLE

    def start(self, is_shown):
        """Run the script; return how it Ended."""
        with tempfile.TemporaryDirectory() as folder:
            settings = self._settings(Path(folder, "findings.json"))
            file = Path(folder, "settings.json")
            settings.write(file)
            log = Path(folder, "log.txt")
            with log.open("w") as log_file:
                output = {"stdout": log_file, "stderr": subprocess.STDOUT}
                if is_shown:  # with --json, standard output is for the record alone
                    output = {"stdout": sys.stderr if self._args.json else None}
                # In the root, where Python finds the module. The script runs in its own folder.
                code, reports = launch.run(
                    [*INSIDE, str(file)], self._variables, self._snapshot, cwd=ROOT, **output
                )
            findings = None
            if os.path.exists(settings.findings):
                findings = Findings.read(settings.findings)
                _add_notes(findings, reports)
            return Ended(code, findings, log.read_text(errors="replace"))

    def _settings(self, file):
        args = self._args
        return Settings(
            script=str(args.user_script.resolve()),
            arguments=args.arguments,
            findings=str(file),
            card=next(key for key, card in cards.CARDS.items() if card is args.card),
            devices=args.devices or 1,
            updates=args.updates,
            image_shape=args.input,
            with_timeline=bool(args.timeline),
        )


def _add_notes(findings, reports):
    """Add the emulator's notes on the script's process to its record."""
    if not findings.record or not reports:
        return
    notes = findings.record["notes"]
    for line, what in reports[0]["lines"].items():
        notes.append(f"{line} reads {what} that no kernel computed")
    for name in reports[0]["called"]:
        notes.append(f"{name}: its result is an assumption")


def lines(findings, too_small, eager_gb, args):
    """Return whether a script fits, what holds its memory, its time, what to try first."""
    r = findings.record
    title = args.card.title if args.fits in (None, args.card) else "A GPU"
    gb = args.fits_gb or args.card.gb
    needs = tables.needs(r)
    fits = too_small or f"{gb - needs:.1f} GB are left"
    text = [
        f"{title}, {gb:.4g} GB: with CUDA's context, {needs:.2f} GB if there is room: {fits}",
        f"{r['script']}: {setting(r)}, {r['precision']}, {r['batch_size']} {r['unit']} per update; "
        f"emulated with torch {r['versions']['torch']}",
        *where_it_is(r),
        *pace.lines(r),
    ]
    if r["time"]:
        text.append(times.line(r["time"], launch.HOST_US, args.card, r["world_size"]))
    if eager_gb:
        text.append(
            f"torch.compile took {findings.compile_seconds:.1f} s; without it, "
            f"{formats.size(eager_gb)} would be allocated"
        )
    if not findings.trained:
        text.append("No module was called in training mode: the figures are for the whole script")
    if r["stopped"]:
        text.append(f"Stopped in {r['stopped']}: what comes after it is not in the figures")
    if findings.has_convolutions:
        text.append(
            "The workspaces of cuDNN are as on an H200, where networks reserved what was "
            f"predicted within {tables.CUDNN:.0%}, with PyTorch 2.11; others may have others"
        )
    if findings.grows_gb:
        text.append(
            f"Memory grows by {formats.size(findings.grows_gb)} with every update: something keeps "
            "tensors, as a sum of losses does; loss.item() keeps a number"
        )
    elif findings.trained:
        text += advice(r, findings.has_convolutions, 0 if too_small else gb - needs)
    shown = r["notes"] if args.details else r["notes"][:NOTES]
    text += [f"- {note}" for note in shown]
    if more := len(r["notes"]) - len(shown):
        text.append(f"- and {more} more: --details, which also prints tables")
    return text


def where_it_is(r):
    """Return where the peak of a script is, and what holds it, as lines."""
    where = r["peak_at"]["train"]["line"]
    active = formats.size(r["train"]["device_active_gb"])
    held = sorted(r["train"]["breakdown_gb"].items(), key=lambda item: -item[1])
    peak = r["train"]["device_peak_gb"]
    parts = ", ".join(f"{label} {formats.size(gb)}" for label, gb in held if gb > SMALL * peak)
    return [f"The peak: {formats.where(r)}; line {where}; {active} active", f"It holds: {parts}"]


def scarce(findings):
    """Return what a script's run on its card did where there was no room, as lines of text."""
    text = []
    if findings.retries:
        text.append(f"PyTorch gave its cache back to make room: {_times(findings.retries)}")
    if findings.errors:
        text.append(
            f"Out-of-memory errors that the script caught: {_times(findings.errors)}; what it does "
            "then is in the figures only if it does so with room, too"
        )
    return text


def _times(count):
    return "once" if count == 1 else f"{count} times"
