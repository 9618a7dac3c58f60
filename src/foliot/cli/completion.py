"""`foliot completion`: a script that completes commands and options in a shell.

Written from the commands themselves, and whole: a shell that has read it starts no Python to complete a word.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print a shell completion script.

    Load it with `source <(foliot completion bash)`, or in fish with `foliot completion fish | source`.
    """
    from foliot.cli.command import foliot  # which has this one among its commands

    offered = _offered(typer.main.get_command(foliot))
    print(_fish(offered) if shell is Shell.FISH else _bash(offered, is_zsh=shell is Shell.ZSH))


def _offered(command: Any, path: str = "") -> dict[str, list[str]]:
    """The next words, by the words typed so far."""
    below = getattr(command, "commands", None)
    if below is None:
        options = [form for one in command.params if not getattr(one, "hidden", False) for form in _forms(one)]
        return {path: [*options, "--help"]}
    found = {path: list(below)}
    for name, inner in below.items():
        found |= _offered(inner, f"{path} {name}".strip())
    return found


def _forms(parameter: Any) -> list[str]:
    return [form for form in (*parameter.opts, *parameter.secondary_opts) if form.startswith("--")]


def _bash(offered: dict[str, list[str]], *, is_zsh: bool) -> str:
    known = "|".join(f'"{path}"' for path in offered if path)
    cases = [f'        "{path}") words="{" ".join(found)}" ;;' for path, found in offered.items()]
    return "\n".join(
        [
            *(["autoload -U +X bashcompinit && bashcompinit"] if is_zsh else []),
            "_foliot() {",
            '    local path="" words="" place=1',
            "    while [ $place -lt $COMP_CWORD ]; do",
            '        case "${path:+$path }${COMP_WORDS[place]}" in',
            f'            {known}) path="${{path:+$path }}${{COMP_WORDS[place]}}" ;;',
            "        esac",
            "        place=$((place + 1))",
            "    done",
            '    case "$path" in',
            *cases,
            "    esac",
            '    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))',
            "}",
            "complete -o default -F _foliot foliot",
        ]
    )


def _fish(offered: dict[str, list[str]]) -> str:
    lines = [
        "function __foliot_at",
        "    set -l words",
        "    for word in (commandline -opc)[2..]",
        "        string match -q -- '-*' $word; or set -a words $word",
        "    end",
        '    test "$words" = "$argv"; or string match -q -- "$argv *" "$words"',
        "end",
    ]
    for path, found in offered.items():
        is_group = not found[0].startswith("--")
        # Behind a group's name only its commands follow; behind a command also values, which have no names.
        at = f'test (commandline -opc)[2..] = "{path}"' if is_group and path else f"__foliot_at {path}"
        at = "test (count (commandline -opc)) -eq 1" if not path else at
        lines.append(f"complete -c foliot {'-f ' if is_group else ''}-n '{at}' -a '{' '.join(found)}'")
    return "\n".join(lines)
