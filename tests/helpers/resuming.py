"""Runs of scripts that are killed or interrupted, and continue with --resume."""

import json

import pytest
from conftest import run

OFTEN = ["--save-minutes", "1e-9"]  # checkpoints as often as possible
SAME = ["load", "test_accuracy", "val_accuracy", "train_accuracy", "first_loss", "last_loss"]


def killed_and_resumed(n, name, at, folder, *options):
    """Train once without interruption and once killed after an update; compare the two runs.

    The losses of all updates, the saved bytes and, for one process, the peak memory must be the
    same.

    Args:
        n: number of processes.
        name: of the script.
        at: the update after which the processes are killed.
        folder: for the output; the killed run saves in folder/killed.
        options: of the script, for ten updates in two epochs.
    """

    def train(at, where, *more, code=0):
        out = folder / f"{where}.jsonl"
        keep = ["--preset", "tiny", "--epochs", 2, "--save", folder / where, *OFTEN, *more]
        run("tests/helpers/kill_and_resume.py", n, out, name, at, *options, *keep, code=code)
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        return lines[-1], [line for line in lines if isinstance(line, list)]

    whole, losses = train(0, "whole")
    _, before = train(at, "killed", code=-9 if n == 1 else 1)
    [checkpoint] = (folder / "killed").glob("checkpoint-*[0-9]")
    assert len([*checkpoint.iterdir()]) == n
    last, seen = train(0, "killed", "--resume")
    first = (at - 1) // 3 * 3  # the last checkpoint; there is one after every third update
    assert [update for update, _ in losses] == [*range(10)] and len(losses[0][1]) == n
    assert before == losses[:at] and seen == [*before, *losses[first:]]
    assert (whole["resumed_at"], last["resumed_at"]) == (None, first)
    assert {key: last[key] for key in SAME} == {key: whole[key] for key in SAME}
    # Tensors read from a file have storages of their own; shards share some.
    parts = [record["train"]["breakdown_gb"] for record in (whole, last)]
    assert parts[0].keys() == parts[1].keys()
    if n == 1:  # 16 bytes: the counts of the accuracy, which a new epoch allocates anew
        assert parts[0] == pytest.approx(parts[1], rel=0, abs=16.5e-9)
    kept = [{f.name: f.read_bytes() for f in (folder / w).iterdir()} for w in ("whole", "killed")]
    assert kept[0] == kept[1] and "config.json" in kept[0]


def interrupt(script, options):
    """Run a script until the end of its first epoch, and interrupt it there."""

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(script.Meter, "validate", stop)
        script.main(options)
