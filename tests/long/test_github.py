"""Promise: forms and workflows have what GitHub needs, and only two jobs may write."""

import re

import yaml
from conftest import ROOT

FILES = {file.stem: yaml.safe_load(file.read_text()) for file in ROOT.glob(".github/*/*.yml")}
JOBS = {f"{stem} {n}": j for stem, x in FILES.items() for n, j in x.get("jobs", {}).items()}


def test_forms_ask_and_workflows_use_one_version_of_each_action():
    for form in (FILES["bug"], FILES["measurement"]):
        asked = [part for part in form["body"] if part["type"] != "markdown"]
        assert asked and form["name"] and form["description"]
        assert len({part["id"] for part in asked}) == len({p["attributes"]["label"] for p in asked})
    steps = [step for job in JOBS.values() for step in job.get("steps", [job])]
    used = {step["uses"] for step in steps if "uses" in step} - {"./.github/workflows/tests.yml"}
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", name) for name in used)
    assert len({name.partition("@")[0] for name in used}) == len(used) > 5
    writes = [name for name, job in JOBS.items() if "write" in str(job.get("permissions"))]
    assert sorted(writes) == ["page deploy", "release publish"]
