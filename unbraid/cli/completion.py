"""`unbraid completion`: a script that completes the command in bash, zsh or fish.

The script is generated from the options of the commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from .. import all_formats
from .options import FORMAT_OPTIONS

SUMMARY = "print a script that completes this command in your shell"
EXAMPLES = """\
  unbraid completion bash > ~/.local/share/bash-completion/completions/unbraid
  unbraid completion zsh > ~/.zfunc/_unbraid
  unbraid completion fish > ~/.config/fish/completions/unbraid.fish
"""


@dataclass(frozen=True)
class Option:
    """An option of a command."""

    names: tuple[str, ...]
    help: str
    choices: tuple[str, ...] = ()
    takes_value: bool = False


def configure(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=("bash", "zsh", "fish"))
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    all_commands = arguments.all_commands()
    commands = {name: (summary, _options(parser)) for name, (summary, parser) in all_commands.items()}
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell]
    print(write(commands), end="")
    return 0


def _options(parser: argparse.ArgumentParser) -> list[Option]:
    options = []
    for action in parser._actions:
        if action.option_strings and action.help != argparse.SUPPRESS:
            help = (action.help or "").split("\n")[0].replace("%%", "%")
            choices = tuple(str(choice) for choice in action.choices or ())
            if set(action.option_strings) & set(FORMAT_OPTIONS):
                choices = tuple(sorted(format.name for format in all_formats()))
            options.append(Option(tuple(action.option_strings), help, choices, action.nargs != 0))
    return options


_Commands = Mapping[str, tuple[str, list[Option]]]


def _bash(commands: _Commands) -> str:
    cases, values = [], []
    for name, (_, options) in commands.items():
        words = " ".join(word for option in options for word in option.names)
        cases.append(f'    {name}) words="{words}" ;;')
        values += [
            f'    "{name} {word}") COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$current")); return ;;'
            for option in options
            for word in option.names
            if option.choices
        ]
    return f"""\
_unbraid() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{" ".join(commands)}" -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}} $before" in
{chr(10).join(values)}
  esac
  case "${{COMP_WORDS[1]}}" in
{chr(10).join(cases)}
  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
    *) compopt -o default; COMPREPLY=() ;;
  esac
}}
complete -F _unbraid unbraid
"""


def _zsh(commands: _Commands) -> str:
    listed = "\n".join(f"    {_quote(f'{name}:{summary}')}" for name, (summary, _) in commands.items())
    cases = []
    for name, (_, options) in commands.items():
        specs = []
        for option in options:
            text = option.help.replace("[", "(").replace("]", ")").replace(":", " ")
            value = f":value:({' '.join(option.choices)})" if option.choices else ":value:_files" * option.takes_value
            specs += [_quote(f"{word}[{text}]{value}") for word in option.names]
        cases.append(f"    {name}) _arguments {' '.join([*specs, _quote('*:file:_files')])} ;;")
    return f"""\
#compdef unbraid
_unbraid() {{
  local -a commands=(
{listed}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{chr(10).join(cases)}
  esac
}}
if [ "$funcstack[1]" = "_unbraid" ]; then _unbraid "$@"; else compdef _unbraid unbraid; fi
"""


def _fish(commands: _Commands) -> str:
    lines = []
    for name, (summary, options) in commands.items():
        lines.append(f"complete -c unbraid -n __fish_use_subcommand -f -a {name} -d {_quote(summary, fish=True)}")
        for option in options:
            words = " ".join(f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" for word in option.names)
            value = " -r" * option.takes_value
            if option.choices:
                value = f" -x -a {_quote(' '.join(option.choices), fish=True)}"
            lines.append(
                f"complete -c unbraid -n '__fish_seen_subcommand_from {name}' {words}{value} "
                f"-d {_quote(option.help, fish=True)}"
            )
    return "\n".join(lines) + "\n"


def _quote(text: str, *, fish: bool = False) -> str:
    """A word in single quotes."""
    return "'" + (text.replace("\\", "\\\\").replace("'", "\\'") if fish else text.replace("'", "'\\''")) + "'"
