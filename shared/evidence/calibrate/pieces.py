"""The pieces of the work: each takes a minute or so, and what it finds is kept at once."""

import json
import os
import subprocess
import sys
import time
import types

import psutil

from shared.cli import UserError
from shared.evidence.calibrate import operations, packages
from shared.ladder.fingerprint import digest, fingerprint
from shared.predict import cards
from shared.predict.jobs import PRELOADED, Wanted, run_jobs
from shared.predict.simulation import predict
from shared.records import scripts
from shared.records.running import forks, run_script
from shared.records.scripts import ROOT

UPDATES = 10  # of each script: the first three are not timed
AT_ONCE = 2  # predictions, as many as run_jobs() makes at a time
# Whose operations are measured: fp32; bf16; few images at once, so that workspaces are small; text.
WATCHED = ("01_baseline/train", "03_bf16/train", "05_grad_accum/train", "11_llm/before")
HISTORY_OF = WATCHED[1]  # all allocations of one update: a file of some MB
# Packages that the tests of the GPU do not import.
PAGES_ONLY = {"jinja2", "pygments", "markdown-it-py", "playwright", "pytest-xdist"}
TESTS = ROOT / "tests" / "long" / "test_cuda.py"
LONGEST = 480  # seconds of any piece that has not ended by itself


class Piece:
    """A piece of the work.

    Attributes:
        name: for people.
        seconds: about how long it takes.
        run: function that does it, and returns in one line why it failed, or None.
    """

    def __init__(self, name, seconds, run):
        self.name, self.seconds, self.run = name, seconds, run


class Work:
    """What all pieces share.

    Attributes:
        preset: "tiny" or "full".
        out: folder for logs.
        command: what the user has typed.
        card: what context.measure() returns; None without a GPU.
        gpus: how many GPUs there are.
        store: store.Store.
        left_out: {what: why it cannot be done here}.
    """

    def __init__(self, preset, out, command, card, gpus, store):
        self.preset, self.out, self.command = preset, out, command
        self.card, self.gpus, self.store = card, gpus, store
        self.left_out = {}
        self.on = [card["name"] if card else "CPU"]  # a machine of another name may go on
        self.gpu = card and cards.of_this_machine(types.SimpleNamespace(**card))

    def load(self, name):
        """Returns a script as a module, None if a package is missing for it."""
        try:
            return scripts.get(name).load()
        except Exception as error:  # some packages do not suit this PyTorch: not only missing ones
            said = str(error).strip().splitlines() or [""]
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            self.left_out[name] = f"{kind}{said[0].removeprefix(f'{name}: ')}"
            return None

    def options(self, module, updates=None):
        """Returns a script's command line."""
        model = module.cli.TASK.presets[self.preset]["model"]
        options = ["--preset", self.preset, "--model", model, "--data", "fake", "--no-pretrained"]
        return options + (["--max-steps", str(updates)] if updates else [])

    def measurements(self, names):
        """Yields a piece for every script that is not measured yet: on one GPU, then on four."""
        for n in (1, 4) if self.gpus >= 4 else (1,):
            for name in names:
                module = self.load(name)
                if not module or n > 1 and module.DEVICES < n:
                    continue
                options = self.options(module, UPDATES)
                if module.DEVICES > 1 and not scripts.get(name).plain:
                    options += ["--devices", str(n)]
                mark = fingerprint(name, [*options, f"x {n}"], module.cli.TASK, self.on)
                before = self.store.measured(n).get(name)
                if not before or before.get("fingerprint") != mark:
                    title = name if n == 1 else f"{name} on {n} GPUs"
                    yield self._measurement(title, name, options, n, mark)

    def _measurement(self, title, name, options, n, mark):
        def run():
            started = time.perf_counter()
            log = self.out / "logs" / f"{name.replace('/', '_')}-{n}.log"
            # Without a GPU, starting Python anew would take most of the time. (On Linux.)
            forked = not self.card and sys.platform == "linux"
            context = forks(PRELOADED) if forked else None
            processes = n if n > 1 and scripts.get(name).plain else None
            record, last = run_script(name, options, log, processes, context)
            if not record:
                return last
            seconds = time.perf_counter() - started
            self.store.add(
                {**record, "seconds": seconds, "fingerprint": mark, "ladder": self.command}, n
            )

        return Piece(title, self.store.typical_seconds(60 if self.card else 10), run)

    def predictions(self, names):
        """Yields pieces that predict what was measured, where that is not done yet."""
        shared = ROOT / "shared"
        rooms = ("predict", "memory", "common")
        code = digest([file for room in rooms for file in sorted((shared / room).glob("*.py"))])
        wanted = []
        for n in (1, 4):
            for name, record in self.store.measured(n).items():
                mark = digest([], code.encode(), str(record.get("fingerprint")).encode())
                if name in names and not self.store.is_checked(record, mark):
                    wanted.append((record, mark))
        for i in range(0, len(wanted), AT_ONCE):
            some = wanted[i : i + AT_ONCE]
            names_of = ", ".join(r["script"] for r, _ in some)
            yield Piece(f"predicting {names_of}", 30, lambda some=some: self._predict(some))

    def _predict(self, some):
        jobs = [(predict, r["script"], self._wanted(r)) for r, _ in some]
        try:
            made = run_jobs(jobs)
        except UserError as error:
            if len(some) == 1:
                return str(error)
            why = [self._predict([one]) for one in some]  # the others can be predicted
            return "; ".join(filter(None, why))
        self.store.check(
            [
                {**p, "command": self.command, "fingerprint": mark, "measured": r}
                for p, (r, mark) in zip(made, some)
            ]
        )

    def _wanted(self, record):
        return Wanted(
            "gpu" if self.card else "cpu",
            self.preset,
            record["model"],
            max_length=record.get("max_length"),
            devices=record["world_size"],
            updates=len(record["input_shapes"]),
            input_shapes=record["input_shapes"],
            card=self.gpu,
        )

    def operations(self, names):
        """Yields a piece for every script of WATCHED whose operations are not measured yet."""
        room = ROOT / "shared" / "predict"
        files = [room / f"{name}.py" for name in ("workspaces", "attention", "gpu")]
        files.append(ROOT / "shared" / "calibrate" / "operations.py")
        for name in WATCHED:
            module = self.load(name) if name in names else None
            if not module:
                continue
            options = self.options(module)
            mark = fingerprint(name, options, module.cli.TASK, [*self.on, digest(files)])
            known = self.store.about.get("operations", {})
            if known.get(name, {}).get("fingerprint") == mark:
                continue
            title = f"operations of {name}"
            run = self._watching(name, options, mark)
            yield Piece(title, 60 if self.card else 15, run)

    def _watching(self, name, options, mark):
        def run():
            if self.card:
                short = name.replace("/", "_")
                arguments = ["--script", name, *options]
                if name == HISTORY_OF:
                    arguments += ["--snapshot", str(self.out / f"{short}-allocations.pickle")]
                rows, why = in_child(self.out / "logs" / f"{short}-operations.json", arguments)
            else:
                wanted = Wanted("gpu", self.preset, options[options.index("--model") + 1])
                (rows,), why = run_jobs([(operations.simulated, name, wanted)]), None
            if why:
                return why
            known = self.store.about.get("operations", {})
            self.store.tell(operations={**known, name: {"fingerprint": mark, "rows": rows}})

        return run

    def tests(self):
        """Yields the tests of the GPU in two pieces, if there is one."""
        if not self.card:
            return
        if gone := packages.missing().keys() - PAGES_ONLY:
            self.left_out["tests/long/test_cuda.py"] = f"not installed: {', '.join(sorted(gone))}"
            return
        code = [TESTS, *sorted((ROOT / "shared").glob("*/*.py")), ROOT / "shared/metrics.py"]
        mark = digest(code, json.dumps(self.on).encode())
        for part in ("not plain", "plain"):
            known = self.store.about.get("tests", {})
            its = known.get(part, {})
            if its.get("fingerprint") != mark or not its["passed"]:  # what failed is run again
                run = self._testing(part, mark)
                yield Piece(f"tests/long/test_cuda.py -k '{part}'", 240, run)

    def _testing(self, part, mark):
        def run():
            # In one process, and without pytest-xdist.
            alone = ["-o", "addopts=", "-p", "no:cacheprovider"]
            command = ["-m", "pytest", "-q", *alone, str(TESTS), "-k", part]
            kept = self.out / f"tests-{self.store.slug}"  # what they measure, to go on with
            kept.mkdir(exist_ok=True)
            log = self.out / "logs" / f"tests-{part.replace(' ', '-')}.log"
            code, last = started(command, log, CUDA_TESTS=str(kept.resolve()))
            if code not in (0, 1):  # 1: tests have failed
                return last
            found = {"fingerprint": mark, "passed": code == 0, "said": last}
            self.store.tell(tests={**self.store.about.get("tests", {}), part: found})
            return None if code == 0 else f"{last} ({log})"

        return run


def in_child(file, arguments):
    """Runs shared.evidence.calibrate.child.

    Args:
        file: pathlib.Path, for what it finds; beside it, what it prints.
        arguments: its further ones.

    Returns:
        what it has found, and None; or None, and in one line why it failed.
    """
    file.unlink(missing_ok=True)
    command = ["-m", "shared.evidence.calibrate.child", str(file), *arguments]
    code, last = started(command, file.with_suffix(".log"))
    if code == 0 and file.exists():
        return json.loads(file.read_text()), None
    return None, last


def started(arguments, log, **environment):
    """Runs Python until it ends, or for LONGEST seconds.

    Returns:
        the exit code, and the last line that it printed; None and why, if it was ended.
    """
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as nvidia-smi counts them
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *arguments], stdout=out, stderr=out, env=environment
        )
    try:
        code = process.wait(LONGEST)
    except subprocess.TimeoutExpired:
        return None, f"not done after {LONGEST} s; the same command goes on"
    finally:
        if process.poll() is None:
            for child in [*psutil.Process(process.pid).children(recursive=True), process]:
                child.kill()
            process.wait()
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return code, lines[-1] if lines else f"exit code {code}"
