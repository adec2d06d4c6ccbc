"""Promise: the page can be published by the workflow, and a picture can be taken of it."""

import builtins
import re
import shlex

import pytest
from browsing import CHROMIUM
from conftest import ROOT, run
from PIL import Image
from workshop_page import written

from shared.common.errors import UserError
from shared.report import command, picture

WORKFLOW = ROOT / ".github" / "workflows" / "page.yml"


@pytest.fixture(scope="module")
def jobs():
    yaml = pytest.importorskip("yaml")
    told = yaml.safe_load(WORKFLOW.read_text())
    started = told[True]  # YAML reads "on" so
    assert started["push"] == {"branches": ["main"]} and "workflow_dispatch" in started
    assert told["concurrency"] == {"group": "pages", "cancel-in-progress": False}
    return told["jobs"]


def test_the_workflow_builds_and_publishes(jobs, tmp_path, monkeypatch):
    steps = {name: job["steps"] for name, job in jobs.items()}
    used = [s["uses"].split("@")[0] for its in steps.values() for s in its if "uses" in s]
    assert used == [
        "actions/checkout",
        "actions/setup-python",
        "actions/upload-pages-artifact",
        "actions/deploy-pages",
    ]
    commands = [shlex.split(step["run"]) for step in steps["build"] if "run" in step]
    assert commands[0] == ["pip", "install", "--no-cache-dir", "-r", "requirements.txt"]
    assert commands[1][:3] == ["python", "-m", "shared.report"] and len(commands) == 2
    monkeypatch.chdir(tmp_path)
    out = command.parse(commands[1][3:]).out
    (packed,) = [s["with"]["path"] for s in steps["build"] if "upload" in s.get("uses", "")]
    assert str(out) == packed
    assert jobs["deploy"]["needs"] == "build"
    assert jobs["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}
    assert jobs["build"]["permissions"] == {"contents": "read"}


def test_the_workflow_names_no_place_to_fetch_from():
    text = WORKFLOW.read_text()
    assert not re.search(r"https?://|--(extra-)?index-url", text)


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium here")
def test_a_picture_of_a_part(tmp_path_factory, tmp_path, capsys):
    pytest.importorskip("playwright")
    page = written(tmp_path_factory.getbasetemp()) / "index.html"
    file = tmp_path / "part.png"
    picture.main([str(file), "--page", str(page)])
    assert f"{file}: article.chosen .moments of {page}" in capsys.readouterr().out
    with Image.open(file) as image:
        assert (
            image.width == pytest.approx(1.5 * (1280 - 2 * 16 - 2 * 21), abs=2)
            and image.height > 500
        )
        assert image.getpixel((0, image.height - 1))[:3] == (255, 255, 255)  # the light theme


def test_without_a_browser(monkeypatch, tmp_path):
    pytest.importorskip("playwright")
    page = tmp_path / "index.html"
    page.write_text("<p>")
    monkeypatch.setattr(picture.shutil, "which", lambda name: str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="^Chromium does not start.*playwright install chromium"):
        picture.take(page)


def test_without_playwright(monkeypatch, tmp_path):
    there = builtins.__import__

    def find(name, *args, **options):
        if name.startswith("playwright"):
            raise ModuleNotFoundError(name=name)
        return there(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", find)
    with pytest.raises(UserError, match="playwright is needed and not installed"):
        picture.take(tmp_path / "index.html")


@pytest.mark.parametrize(
    "options, said",
    [
        (["a.png"], "--page out/index.html: no such file; `python -m shared.report` writes it"),
        (["a.jpg"], "a.jpg: the picture's name must end in .png"),
    ],
)
def test_mistakes(options, said, tmp_path):
    printed = run("-m", "shared.report.picture", *options, code=2, cwd=tmp_path)
    assert said in printed and len(printed.strip().splitlines()) == 1
