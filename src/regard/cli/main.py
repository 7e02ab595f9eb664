"""The command `regard`."""

import errno
import sys
import warnings
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from regard import __version__
from regard.errors import RegardError

_COMMANDS = {
    "demo": ("regard.cli.demo", "The main job on a fictional world, in two to three minutes."),
    "birthplaces": ("regard.cli.birthplaces", "The main job on real people; needs their data."),
    "world": ("regard.cli.world", "Write the fictional world to files."),
    "pretrain": ("regard.cli.train", "Train a model on text."),
    "finetune": ("regard.cli.train", "Train a pretrained model on questions."),
    "tasks": ("regard.cli.tasks", "What a model can be trained for."),
    "train": ("regard.cli.train", "Train a model from scratch for a task."),
    "evaluate": ("regard.cli.evaluate", "Score a run's answers and write a report."),
    "generate": ("regard.cli.generate", "Continue texts."),
    "data": ("regard.cli.data", "Print examples of what a model is trained on."),
    "look": ("regard.cli.look", "See the attention of a model while it reads a text."),
    "patterns": ("regard.cli.look", "What each head of a model looks at, as numbers."),
    "serve": ("regard.cli.serve", "Look at runs on a local page while they read and write."),
    "study": ("regard.cli.study", "Questions about attention, run, drawn and answered."),
    "config": ("regard.cli.config", "Print a whole recipe as commented TOML."),
    "attention": ("regard.cli.attention", "What attention mechanisms can do; check your own."),
    "import-hf": ("regard.cli.import_hf", "Make a run of a GPT-2 or BERT of Hugging Face."),
    "info": ("regard.cli.config", "What a run is, how it was made, how far it got."),
}


class _Lazy(click.Group):
    """Loads a command when it is used, so that --help needs no torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(module), cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="regard")
def regard() -> None:
    """Build, train, compare and look inside attention-based sequence models."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit: 0 if it worked, 2 for a user's mistake, 1 for all else."""
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal may lack ⁇ and ·
            stream.reconfigure(errors="replace")
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run a command; its exit code. A failure is told in one line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        regard.main(arguments or ["--help"], standalone_mode=False, prog_name="regard")
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _fail("stopped", 130)
    except RegardError as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:
        return _fail(*_explain(error))
    return 0


def _explain(error: OSError) -> tuple[str, int]:
    """A message and exit code for a failure of the system."""
    place = f"{error.filename}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"{place}the disk is full; make room and repeat the command, training with --resume",
            1,
        )
    mistakes = (
        FileExistsError,
        FileNotFoundError,
        IsADirectoryError,
        NotADirectoryError,
        PermissionError,
    )
    if isinstance(error, mistakes) or error.errno in (errno.EROFS, errno.ENAMETOOLONG):
        return f"{place}can't be written: {error.strerror}; choose another place", 2
    return f"{place}{error.strerror or error}", 1


def _fail(message: str, code: int) -> int:
    print("regard:", " ".join(map(str.strip, message.splitlines())), file=sys.stderr)
    return code


def _show_warning(message: Warning | str, *_args: Any, **_kwargs: Any) -> None:
    print(f"regard: warning: {message}", file=sys.stderr)
