"""Promise: an accident of the computer's ends in one line, and nothing measured or written is lost.

Such as a full disk, or an output that nobody reads.
"""

import contextlib
import json
import os
import resource
import signal

import pytest
import torch
from conftest import ROOT, cpu_only, run
from forked import become
from torch.distributed.elastic.multiprocessing import errors
from workshop_page import RECORD

from shared.common import scripts, writing
from shared.common.errors import UserError
from shared.images import cli, pretrain
from shared.ladder import folder
from shared.lessons import pages
from shared.predict import command as predictor
from shared.predict.jobs import PRELOADED
from shared.records import bars
from shared.records import record as records
from shared.records.running import forks
from shared.report import charts
from shared.report import command as report


def one_line(error):
    return str(error.value) if "\n" not in str(error.value) else pytest.fail(str(error.value))


def started(words, out, **variables):
    """Starts a Python command in a fork, which prints to a file or pipe."""
    environ = {**cpu_only(), **variables}
    process = forks(PRELOADED).Process(target=become, args=(words, str(ROOT), str(out), environ))
    process.start()
    return process


def test_output_that_nobody_reads_and_full_disks(tmp_path):
    pipe, said = tmp_path / "pipe", tmp_path / "said.jsonl"
    os.mkfifo(pipe)
    training = ["01_baseline/train.py", "--preset", "tiny", "--max-steps", "1", "--data", "fake"]
    left = started(training, pipe)
    with pipe.open():
        pass
    full = started([*training, "--record", str(said)], "/dev/full")
    error_file = tmp_path / "error.json"
    torchrun = {"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_ERROR_FILE": str(error_file)}
    out = tmp_path / "out"
    out.touch()
    wrong = started(["08_fsdp/plain.py", "--model", "nope"], out, **torchrun)
    for process, code in ((left, 141), (full, 2), (wrong, 2)):
        process.join(120)
        assert process.exitcode == code
    assert records.read(said)[1] == 0 and len(records.read(said)[0]) == 1
    # torchrun prints this table last.
    failure = errors.ProcessFailure(0, 1, 2, str(error_file))
    *_, last, border = (
        errors.ChildFailedError("08_fsdp/plain.py", {0: failure}).format_msg().split("\n")
    )
    assert set(border) == {"="}
    assert "08_fsdp/plain.py: --model nope: there is no such model" in last
    assert last.split(": ", 1)[1] == out.read_text().strip()


def test_closed_standard_streams():
    child = os.fork()
    if child == 0:
        os.closerange(0, 3)
        import sys

        sys.stdout = sys.stderr = None
        writing.standard_streams()
        print("to nobody", flush=True)
        same = os.fstat(1).st_rdev == os.stat(os.devnull).st_rdev
        os._exit(0 if same and os.open(os.devnull, os.O_RDONLY) > 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextlib.contextmanager
def files_of_at_most(size):
    """What a full disk does, to every file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_record_that_cannot_be_written_is_printed(capsys):
    module = scripts.get("01_baseline/train").load()
    options = ["--preset", "tiny", "--max-steps", "1", "--data", "fake", "--record", "/dev/full"]
    with pytest.raises(UserError, match="cannot write /dev/full: No space left") as error:
        module.main(options)
    one_line(error)
    printed = capsys.readouterr().out.splitlines()
    (line,) = [line for line in printed if line.startswith("{")]
    assert json.loads(line)["script"] == "01_baseline/train"
    assert printed[-1].startswith("1 update in")


def test_appended_records_are_whole_or_not_there(tmp_path, capsys):
    file = tmp_path / "r.jsonl"
    file.write_bytes(b'{"script": "06_sgd/tr')  # a computer that was switched off
    writing.append(file, RECORD)
    assert records.read(file) == ([RECORD], 1)
    before = file.read_bytes()
    with files_of_at_most(len(before) + 20), pytest.raises(UserError, match="File too large"):
        writing.append(file, RECORD)
    assert file.read_bytes() == before
    assert json.loads(capsys.readouterr().out) == RECORD
    writing.append(file, RECORD)
    assert records.read(file) == ([RECORD, RECORD], 1)
    for path in (tmp_path, tmp_path / "pipe"):
        if path != tmp_path:
            os.mkfifo(path)  # which nobody reads
        with pytest.raises(UserError, match=f"cannot write {path}"):
            writing.append(path, RECORD)
        with pytest.raises(UserError, match=f"cannot write {path}"):
            cli.parse(scripts.get("01_baseline/train").path, ["--record", str(path)], batch_size=1)


def test_files_are_whole_or_as_they_were(tmp_path):
    file, link = tmp_path / "f.json", tmp_path / "link.json"
    writing.write_text(file, "old")
    link.symlink_to(file)
    state = {"w": torch.zeros(50_000)}

    def save():  # torch.save has an error of its own for a full disk
        with writing.whole(file) as part:
            torch.save(state, part)

    def draw():
        bars.draw([RECORD], file)

    for write in (save, draw, lambda: writing.write_text(link, "new" * 9000)):
        with files_of_at_most(5000), pytest.raises(UserError, match=f"cannot write {tmp_path}"):
            write()
        assert file.read_text() == "old" and len(list(tmp_path.iterdir())) == 2
    writing.write_text(link, "new")
    assert file.read_text() == "new" and link.is_symlink()
    with pytest.raises(KeyError), writing.whole(file) as part:
        part.write_text("half")
        raise KeyError
    assert file.read_text() == "new" and len(list(tmp_path.iterdir())) == 2
    for disk in (OSError(28, "No space left on device"), RuntimeError("x (os error 28)")):
        with pytest.raises(UserError, match="cannot write x: .*; y"), writing.saying("x", "y"):
            raise disk
    assert writing.unwritable(ValueError("a mistake of ours")) is None


def test_a_saved_model_is_whole_or_as_it_was(tmp_path):
    (tmp_path / "config.json").write_text("old")
    with files_of_at_most(5000), pytest.raises(UserError, match="but the model is"):
        with writing.whole_folder(tmp_path, "but the model is") as part:
            (part / "config.json").write_text("new")
            (part / "model.safetensors").write_text("x" * 9000)
    assert (tmp_path / "config.json").read_text() == "old"
    with writing.whole_folder(tmp_path) as part:
        (part / "deeper").mkdir()
        for name in ("config.json", "deeper/file"):
            (part / name).write_text("new")
    assert (tmp_path / "config.json").read_text() == (tmp_path / "deeper/file").read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 2


PHASE = RECORD["train"]
STRANGE = [
    {"model": "$x_{$"},
    {"model": "<script>alert(1)</script>"},
    {"model": "two\nlines \x1b[31m"},
    {"model": "m" * 20_000, "device": "d" * 20_000, "dataset": "$y_{$"},
    {"model": "模型"},
]
NONE_OF_OURS = [
    {"load": None},
    {"train": {**PHASE, "device_peak_gb": "1.0"}},
    {"train": {**PHASE, "device_peak_gb": 10**400}},
    {"train": {**PHASE, "breakdown_gb": None}},
    {"train": {**PHASE, "breakdown_gb": {"activations": float("nan")}}},
    {"train": {**PHASE, "device_reserved_gb": "many"}},
    {"world_size": "4"},
    {"image_px": None},
    {"versions": {"torch": 2}},
    {"model": "\ud800"},
    {"model": 7},
    {"peak_at": {"train": 7}},
    {"peak_at": {}},
    {"date": 2026},
    {"test_accuracy": "good"},
]


def test_strange_records_are_shown_or_left_out(tmp_path, capsys, recwarn):
    file = tmp_path / "ladder.jsonl"
    shown = [{**RECORD, **r, "script": f"01_a/{n}$^{{"} for n, r in enumerate(STRANGE)]
    wrong = [json.dumps({**RECORD, **r, "script": f"02_a/{n}"}) for n, r in enumerate(NONE_OF_OURS)]
    wrong += ["[" * 100_000, '{"script": "03_a/x"}', "7", '{"a"']
    lines = [json.dumps(r).encode() for r in shown] + [w.encode() for w in wrong] + [b"\xff\xfe"]
    file.write_bytes(b"\n".join(lines) + b"\n")
    args = report.parse(["--records", str(file), "--out", str(tmp_path / "out")])
    told = f"- {len(wrong) + 1} unreadable lines in {file} left out"
    assert args and told in capsys.readouterr().out
    found = charts.measurements(file)
    names = " ".join(data["name"] for data in found)
    assert sum(len(data["rows"]) for data in found) == len(shown)
    assert "\n" not in names and "\x1b" not in names and len(names) < 1000
    bars.draw([r for data in found for r in data["records"]], tmp_path / "bars.png")
    assert (tmp_path / "bars.png").stat().st_size > 1000 and not recwarn.list
    known = folder.readable(file)
    assert [r["model"] for r in known] == [r["model"] for r in shown]
    assert b"\xff\xfe" in (tmp_path / "ladder.unreadable").read_bytes()  # not lost
    assert records.read(file)[1] == 0
    for path in (tmp_path, tmp_path / "pipe"):
        if path != tmp_path:
            os.mkfifo(path)
        with pytest.raises(UserError, match="is no file"):
            report.parse(["--records", str(path)])


def test_a_folder_belongs_to_one_ladder(tmp_path):
    with folder.alone(tmp_path, "python -m shared.ladder --fresh"):
        with pytest.raises(UserError) as error, folder.alone(tmp_path, "another"):
            pass
        who = f"process {os.getpid()}, since 2"
        assert f"--out {tmp_path} is in use by another ladder ({who}" in one_line(error)
        assert "python -m shared.ladder --fresh" in str(error.value)
        printed = run("-m", "shared.ladder", "--preset", "tiny", "--out", tmp_path, code=2)
        assert "is in use by another ladder" in printed and "Traceback" not in printed
        (tmp_path / ".ladder.json").write_text("{")
        with pytest.raises(UserError, match="in use by another ladder;"):
            folder.alone(tmp_path, "another").__enter__()
    with folder.alone(tmp_path, "another"):  # it is free again
        pass


def test_they_look_whether_they_can_write_before_they_work(tmp_path, monkeypatch):
    for name in ("index.html", "timelines.json", "ladder.png", "README.md"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(pages, "pages", lambda: [tmp_path / "README.md"])
    monkeypatch.setattr(pages, "fill", None)
    file = tmp_path / "file"
    file.touch()
    for work, argv in (
        (pretrain.main, ["--out", str(tmp_path)]),
        (pretrain.main, ["--out", str(file / "weights.pt")]),
        (report.parse, ["--out", str(tmp_path)]),
        (report.parse, ["--out", str(file)]),
        (predictor.parse, ["01", "--timeline", str(tmp_path)]),
        (predictor.parse, ["01", "--timeline", str(file)]),
        (pages.main, []),
    ):
        with pytest.raises(UserError) as error:
            work(argv)
        one_line(error)
    printed = run("-m", "shared.ladder", "--preset", "tiny", "--out", tmp_path, code=2)
    assert f"{tmp_path}/ladder.png is a folder" in printed
