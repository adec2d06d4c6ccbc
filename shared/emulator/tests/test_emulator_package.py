"""Promise: the emulator is a package that runs anywhere, without this repository.

The files of the package are those that Hatch takes: what git does not ignore, in the folder that
pyproject.toml names. https://hatch.pypa.io/latest/config/build/#file-selection
"""

import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
from conftest import NEEDS, PROJECT, cpu_only

TRAIN = """
import sys, torch
model = torch.nn.Linear(1024, 1024, device="cuda")
model(torch.ones(8, 1024, device="cuda")).sum().backward()
files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
assert not [file for file in files if file.startswith(sys.argv[1])]
print(torch.cuda.get_device_name())
"""
MISTAKES = {
    "": "name a script to run",
    "missing.py": "missing.py: there is no such script or program",
    "-m": "-m: name a module to run",
    "--card a1000 train.py": "a1000 is not a known card",
    "--card h10 train.py": "did you mean h100?",
    "why --card 4090 train.py": "4090 is not a known card; did you mean rtx4090?",
    "--devices 0 train.py": "0 is not a number of devices",
    "--devices 65 train.py": "at most 64 without --alone",
    "--host soon train.py": "soon is not a number of microseconds",
    "--json . train.py": ". is a folder",
    "--snapshot nowhere/x.pickle train.py": "nowhere/x.pickle: it cannot be written",
    "--crad t4 train.py": "unrecognized arguments: --crad",
    "cards t4": "unrecognized arguments: t4",
    "compare --python /bin/true --python /bin/true train.py": "/bin/true is no Python",
}


def packaged_files():
    """Return the files of the wheel, relative to the project."""
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    (package,) = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", package]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this copy of the repository is no git checkout")
    files = []
    for name in done.stdout.splitlines():
        # A link to a folder is one file to git, and what is in it to Hatch.
        inside = [*(PROJECT / name).glob("*.py")] if (PROJECT / name).is_symlink() else []
        files += (str(file.relative_to(PROJECT)) for file in inside or [PROJECT / name])
    return [name for name in files if (PROJECT / name).exists()]


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A folder with the package's files, one to run scripts in, and their environment."""
    tmp_path = tmp_path_factory.mktemp("elsewhere")
    site, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(TRAIN)
    for name in packaged_files():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, site / name)
    # An empty cache: the library is compiled from the files of the copy.
    env = cpu_only(PYTHONPATH=str(site), XDG_CACHE_HOME=str(tmp_path / "cache"))
    return work, env


def emulate(elsewhere, *words):
    work, env = elsewhere
    command = [sys.executable, "-m", "emulated_gpu", *words]
    return subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=300)


@NEEDS
def test_it_runs_without_the_repository(elsewhere):
    (elsewhere[0] / "numpy.py").write_text("raise ModuleNotFoundError")  # it is not needed
    done = emulate(elsewhere, "--card", "rtx3090", "train.py", str(PROJECT))
    assert done.stdout == "NVIDIA GeForce RTX 3090\n", done.stderr
    assert done.stderr.startswith("\nemulated RTX 3090, peaks:")  # and no warning
    assert len([*elsewhere[0].parent.glob("cache/emulated-gpu/*/libcuda.so.1")]) == 1


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_are_one_line(words, elsewhere):
    done = emulate(elsewhere, *words.split())
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode == 2 and line.startswith("emulated-gpu: ") and MISTAKES[words] in line


def test_help_names_every_option(elsewhere):
    printed = emulate(elsewhere, "--help").stdout
    assert all(f"  --{name}" in printed for name in ("card", "devices", "alone", "host", "json"))
    assert max(map(len, printed.splitlines())) <= 100
    assert ", torch 2." in emulate(elsewhere, "--version").stdout


def test_the_wheel_has_all_files(tmp_path):
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    (file,) = wheel.WheelBuilder(str(PROJECT)).build(directory=str(tmp_path), versions=["standard"])
    names = {name for name in zipfile.ZipFile(file).namelist() if ".dist-info/" not in name}
    assert names == {*packaged_files()}
    assert any(name.endswith(".h") for name in names) and "emulated_gpu/cards.csv" in names


def test_cards_are_listed():
    command = [sys.executable, "-um", "emulated_gpu", "cards"]
    said = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    with (PROJECT / "emulated_gpu" / "cards.csv").open() as file:
        assert len(said.stdout.splitlines()) == len(file.readlines())
    done = subprocess.run(
        f"{' '.join(command)} | head -0", shell=True, cwd=PROJECT, capture_output=True, text=True
    )
    assert not done.stderr
