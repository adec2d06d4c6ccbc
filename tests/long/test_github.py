"""Promise: forms, workflows and the action have what GitHub needs, and only two jobs may write."""

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml
from conftest import ROOT, cpu_only
from helpers.emulated import NEEDS

EMULATOR = ROOT / "shared/emulator"
ACTION = yaml.safe_load((EMULATOR / "action.yml").read_text())
STEPS = ACTION["runs"]["steps"]
FILES = {file.stem: yaml.safe_load(file.read_text()) for file in ROOT.glob(".github/*/*.yml")}
JOBS = {f"{stem} {n}": j for stem, x in FILES.items() for n, j in x.get("jobs", {}).items()}


def test_forms_ask_and_workflows_use_one_version_of_each_action():
    for form in (FILES["bug"], FILES["measurement"]):
        asked = [part for part in form["body"] if part["type"] != "markdown"]
        assert asked and form["name"] and form["description"]
        assert len({part["id"] for part in asked}) == len({p["attributes"]["label"] for p in asked})
    steps = [step for job in JOBS.values() for step in job.get("steps", [job])] + STEPS
    used = {step["uses"] for step in steps if "uses" in step} - {"./.github/workflows/tests.yml"}
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", name) for name in used)
    assert len({name.partition("@")[0] for name in used}) == len(used) > 5
    writes = [name for name, job in JOBS.items() if "write" in str(job.get("permissions"))]
    assert sorted(writes) == ["page deploy", "release publish"]


def test_the_action_has_inputs_and_shells():
    text = (EMULATOR / "action.yml").read_text()
    assert {*ACTION["inputs"]} == {*re.findall(r"inputs\.([\w-]+)", text)}
    assert all(field["description"] and "default" in field for field in ACTION["inputs"].values())
    assert ACTION["name"] and ACTION["description"] and ACTION["runs"]["using"] == "composite"
    assert all("uses" in step or step["shell"] for step in STEPS)
    # GitHub would put a text in place of an expression, and the shell would take it for code.
    assert not [step for step in STEPS if "${{" in step.get("run", "")]


TRAIN = """
import torch
torch.empty(100 << 20, device="cuda", dtype=torch.uint8)
"""
TEST = """
import pytest, torch

@pytest.mark.gpu_memory(max_gb=2)
def test_it():
    torch.empty(100 << 20, device="cuda", dtype=torch.uint8)
"""
GH = """#!/bin/bash
printf '%s\\n' "$*" >> asked
[ ! -e refuses ] && if [ -e id ]; then cat id; fi
"""
SHELLS = {
    "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"],
    "python": [sys.executable, "-c"],
}


def act(folder, number, first, **inputs):
    """Run the action's last steps as GitHub does; return the exit code and the summary."""
    values = {f"inputs.{name}": field["default"] for name, field in ACTION["inputs"].items()}
    values |= {f"inputs.{name.replace('_', '-')}": text for name, text in inputs.items()}
    values |= {"github.token": "", "github.event.pull_request.number": number}
    output, summary = folder / "output", folder / "summary"
    env = cpu_only(
        PATH=f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        PYTHONPATH=str(EMULATOR),
        RUNNER_TEMP=str(folder),
        GITHUB_OUTPUT=str(output),
        GITHUB_STEP_SUMMARY=str(summary),
        GITHUB_REPOSITORY="owner/name",
    )
    for step in STEPS[first:]:
        if output.exists():
            values["steps.run.outputs.code"] = output.read_text().strip().partition("=")[2]
        own = {name: values[text.strip("${ }")] for name, text in step["env"].items()}
        command = [*SHELLS[step["shell"]], step["run"]]
        done = subprocess.run(command, cwd=folder, env=env | own, timeout=200)
    return done.returncode, summary.read_text()


@NEEDS
def test_the_action_comments_once_and_fails_above_the_budget(tmp_path):
    base = tmp_path / ".gpu-memory-base"
    base.mkdir()
    (base / "train.py").write_text(TRAIN)
    (tmp_path / "train.py").write_text(TRAIN.replace("100", "200"))
    (tmp_path / "gh").write_text(GH)
    (tmp_path / "gh").chmod(0o755)
    code, summary = act(tmp_path, "7", -3, command="train.py", max_gb="0.9")
    assert code == 3 and "| 0.84 GB | 0.95 GB | +0.11 GB |" in summary, summary
    assert "more than 0.9 GB" in summary
    (tmp_path / "id").write_text("12")
    act(tmp_path, "7", -1)
    listed, created, _, updated = (tmp_path / "asked").read_text().splitlines()
    assert created.startswith("api repos/owner/name/issues/7/comments -F body=@")
    assert updated.startswith("api -X PATCH repos/owner/name/issues/comments/12 -F body=@")
    mark = re.search(r"<!-- gpu-memory \d+ -->", listed)[0]
    assert summary.startswith(mark)
    (tmp_path / "refuses").touch()  # as for a pull request from a fork
    assert act(tmp_path, "7", -1)[0] == 3
    assert len((tmp_path / "asked").read_text().splitlines()) == 5


@NEEDS
def test_the_action_runs_marked_tests(tmp_path):
    (tmp_path / "test_it.py").write_text(TEST)
    code, summary = act(tmp_path, "", -3)
    assert code == 0 and "| `test_it.test_it` |  | 0.84 GB |  |" in summary, summary
