"""runtime_info.json: the command, the environment without its secrets, the folder and the time."""

from __future__ import annotations

import datetime
import json
import os
import re
import shlex
import sys
from collections.abc import Mapping

REDACTED = "<redacted>"

_SECRET_WORDS = "APIKEY|AUTH|CREDENTIALS?|COOKIE|KEYS?|PASS|PASSWD|PASSWORD|PASSPHRASE|PAT|PRIVATE|PWD|SECRETS?|TOKENS?"
_SECRET_NAME = re.compile(
    rf"(^|[_.-])({_SECRET_WORDS})([_.-]|\d*$)|PASSWORD|PASSWD|SECRET|TOKEN|APIKEY|CREDENTIAL", re.IGNORECASE
)
_HARMLESS_NAMES = {"PWD", "OLDPWD", "SSH_AUTH_SOCK", "TOKENIZERS_PARALLELISM", "GPG_KEY"}
_SECRET_VALUE = re.compile(
    r"://[^/\s:@]+:[^/\s@]+@"  # a password in an address
    r"|\b(gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-)[A-Za-z0-9_-]{10,}"  # tokens known by their beginning
    r"|\b(AKIA|ASIA)[A-Z0-9]{12,}|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


def looks_secret(name: str, value: str) -> bool:
    if name.upper() in _HARMLESS_NAMES:
        return False
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


def is_credential(name: str, value: object) -> bool:
    """Of a program's own value, where `eos_token` and `num_key_value_heads` are harmless: a text that has the form of a
    known credential, or one word of some length under a name that says so."""
    if not isinstance(value, str):
        return False
    is_word = len(value) >= 16 and re.fullmatch(r"[\w+/=.:~-]+", value) is not None
    return bool(_SECRET_VALUE.search(value) or (is_word and looks_secret(name, value)))


def environment() -> dict[str, str]:
    """The environment; what looks like a credential is redacted unless TENSCOPE_ENV=all."""
    keep_all = os.environ.get("TENSCOPE_ENV") == "all"
    return {
        name: REDACTED if not keep_all and value and looks_secret(name, value) else value
        for name, value in sorted(_programs_own(os.environ).items())
    }


def _programs_own(variables: Mapping[str, str]) -> dict[str, str]:
    """Without what `tenscope run` has put there for the processes that the program starts."""
    own = {name: value for name, value in variables.items() if name not in _RUN_VARIABLES}
    if "PYTHONPATH" in own:
        folders = [folder for folder in own["PYTHONPATH"].split(os.pathsep) if not _is_our_site(folder)]
        own["PYTHONPATH"] = os.pathsep.join(folders)
        if not folders:
            del own["PYTHONPATH"]
    return own


def _is_our_site(folder: str) -> bool:
    return folder.endswith(os.path.join("tenscope", "launch", "site"))


def set_meanwhile() -> list[str]:
    """The names of variables that this process did not begin with: the program sets them, or a library (torch)."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = (entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
            before = {os.fsdecode(name): os.fsdecode(value) for name, value in pairs}
    except OSError:
        return []
    before, now = _programs_own(before), _programs_own(os.environ)
    return sorted(name for name in now if now[name] != before.get(name))


def full_command() -> str:
    """A line that can be pasted into a shell. Under `python -m`, and with interpreter options, it says so too."""
    original = list(getattr(sys, "orig_argv", []) or [])
    if original:
        return shlex.join([sys.executable or original[0], *original[1:]])
    return shlex.join([sys.executable, *sys.argv])


# What `tenscope run` was told to run, for the processes that it starts: their own command is not the program's.
PROGRAM_VARIABLE = "TENSCOPE_RUN_PROGRAM"


_RUN_VARIABLES = (PROGRAM_VARIABLE, "TENSCOPE_RUN", "TENSCOPE_RUN_OPTIONS")


def note_program() -> None:
    """This process runs the program: what `collect` says in it and in those that it starts."""
    program = {
        "executable": sys.executable,
        "arguments": list(getattr(sys, "orig_argv", sys.argv))[1:],
        "working_directory": os.getcwd(),
    }
    if os.environ.get("WORLD_SIZE", "1") != "1" and "RANK" in os.environ:  # it is one rank of a launcher's
        program["world_size"] = int(os.environ["WORLD_SIZE"])
        program["local_world_size"] = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    os.environ[PROGRAM_VARIABLE] = json.dumps(program)


def _program() -> dict:
    text = os.environ.get(PROGRAM_VARIABLE)
    return {"program": json.loads(text)} if text else {}


def collect() -> dict:
    return {
        **_program(),
        "command": {"executable": sys.executable, "argv": list(sys.argv), "full_command": full_command()},
        "environment_variables": environment(),
        "set_by_the_program": set_meanwhile(),
        "working_directory": os.getcwd(),
        "timestamp": datetime.datetime.now().astimezone().isoformat(),
    }
