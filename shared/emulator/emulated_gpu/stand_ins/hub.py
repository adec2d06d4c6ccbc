"""The Hugging Face hub: one short test of the connection, and offline mode if it fails.

Without a connection, the hub's client would try each file of a model for half a minute, silently.
"""

import contextlib
import http.client
import os
import ssl
import threading
import urllib.error
import urllib.request

PATIENCE = 5  # seconds


def in_constants(constants):
    """Let a program read files from the cache alone if the hub of these constants is not reached.

    Args:
        constants: the module huggingface_hub.constants.
    """
    if constants.HF_HUB_OFFLINE or is_reached(constants.ENDPOINT):
        return
    constants.HF_HUB_OFFLINE = True
    # For packages that are imported later and read it themselves, and for further processes.
    os.environ["HF_HUB_OFFLINE"] = "1"


def is_reached(url):
    """Return whether a server answers within PATIENCE; proxies of the environment are used."""
    answers = []
    # A thread, since a name server that does not answer takes its own time.
    asking = threading.Thread(target=_ask_server, args=(url, answers), daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return bool(answers)


def _ask_server(url, answers):
    request = urllib.request.Request(url, method="HEAD")
    # No answer, none that is HTTP, or no address.
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        try:
            urllib.request.urlopen(request, timeout=PATIENCE).close()
        except urllib.error.URLError as error:
            # A code such as 405 is an answer, too; and of certificates the client may know more.
            is_answer = isinstance(error, urllib.error.HTTPError)
            if not is_answer and not isinstance(error.reason, ssl.SSLError):
                return
        answers.append(True)
