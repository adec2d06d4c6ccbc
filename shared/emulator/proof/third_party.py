"""Git, and a cache of third-party repositories and of environments with older PyTorch."""

import json
import os
import re
import subprocess
import venv

# As much as importlib.metadata needs to find a package.
FOUND = "Metadata-Version: 2.1\nName: {}\nVersion: 1\n"


class Unavailable(Exception):
    """A repository or a package cannot be had."""


def git(*words):
    """Run git; return its output in bytes, None if it fails."""
    command = ["git", "-c", "advice.detachedHead=false", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE)
    return None if done.returncode else done.stdout


def repository(folder, url, commit):
    """Return the path of a repository at a commit; it is fetched if the folder lacks it.

    Raises:
        Unavailable: it cannot be fetched.
    """
    name = "+".join(url.rstrip("/").split("/")[-2:])
    checkout = folder.resolve() / f"{name}-{commit[:7]}"
    if not checkout.exists():
        # Without the contents of other commits: some of these repositories are large.
        clone = "clone", "-q", "--no-checkout", "--filter=blob:none", url, checkout
        for words in (clone, ("-C", checkout, "checkout", "-q", commit)):
            if git(*words) is None:
                raise Unavailable(f"{url} cannot be fetched into {checkout}")
    return checkout


def python(folder, torch, packages):
    """Return the Python of an environment with a version of PyTorch and further packages.

    It is made, or completed, in folder/torch-VERSION; that takes minutes and about 6 GB of disk.

    Raises:
        Unavailable: pip cannot install a package; its own message is above.
    """
    home = folder.resolve() / f"torch-{torch}"
    python = home / "bin/python"
    record = home / "packages.json"  # the packages that are installed, as they were asked for
    installed = json.loads(record.read_text()) if record.exists() else {}
    # If a package is asked for twice, the last version is installed.
    wanted = {re.match(r"[\w.-]+", text)[0]: text for text in (f"torch=={torch}", *packages)}
    if wanted.items() <= installed.items():
        return str(python)
    if not python.exists():
        venv.create(home, with_pip=True)
    command = [python, "-m", "pip", "install", "-q", *wanted.values()]
    # Bytecode of all modules would take time and disk, and few of them are imported.
    if subprocess.run(command, env={**os.environ, "PIP_NO_COMPILE": "1"}).returncode:
        raise Unavailable(f"{home}: pip cannot install {', '.join(wanted.values())}")
    # At the end, so that an installation that was interrupted is tried again.
    record.write_text(json.dumps({**installed, **wanted}, indent=1))
    return str(python)


def distributions(folder, names):
    """Return folders, one or none, in which importlib.metadata finds packages of these names.

    The authors of scripts had them installed.
    """
    for name in names:
        info = folder.resolve() / "distributions" / f"{name}-1.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text(FOUND.format(name))
    return [folder.resolve() / "distributions"] if names else []
