"""The command `regard`."""

import errno
import gc
import os
import sys
import warnings
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from regard import __version__
from regard.errors import RegardError, UserError, alternatives
from regard.operating_system import is_launched

_COMMANDS = {
    "demo": (
        "regard.cli.demo",
        "Pretraining and recall on a fictional world, in 1 to 3 minutes.",
    ),
    "birthplaces": ("regard.cli.birthplaces", "Pretraining and recall on real birthplaces."),
    "world": ("regard.cli.data", "Write the fictional world to files."),
    "pack": ("regard.cli.pack", "Write a corpus as token files, for training on large texts."),
    "pretrain": ("regard.cli.train", "Train a model on text."),
    "finetune": ("regard.cli.train", "Train a pretrained model on questions."),
    "tasks": ("regard.cli.data", "List the tasks of regard train."),
    "train": ("regard.cli.train", "Train a model for a task, from scratch or from a run."),
    "compare": ("regard.cli.compare", "Train a grid of runs and compare them."),
    "evaluate": ("regard.cli.evaluate", "Score a run and write a report."),
    "calibrate": ("regard.cli.ask", "Find the confidence below which a run abstains."),
    "ask": ("regard.cli.ask", "Answer questions with confidence and evidence, or abstain."),
    "generate": ("regard.cli.generate", "Continue texts, answer or label them."),
    "compile": ("regard.cli.generate", "Compile the decoding of a run, for faster generation."),
    "data": ("regard.cli.data", "Print training examples of a file."),
    "index": ("regard.cli.corpus", "Index a corpus for regard find."),
    "find": ("regard.cli.corpus", "Find a text, or its longest spans, in an indexed corpus."),
    "look": ("regard.cli.look", "Show the attention of a model on a text."),
    "effects": ("regard.cli.effects", "Measure the effect of each head by patching."),
    "paths": ("regard.cli.effects", "Measure direct and total effects of each head."),
    "faithfulness": ("regard.cli.effects", "Measure the faithfulness of circuits of heads."),
    "lens": ("regard.cli.lens", "Show predictions of each layer, and contributions of parts."),
    "prune": ("regard.cli.prune", "Save a run without its least important heads."),
    "head-scores": ("regard.cli.look", "Measure the attention pattern of each head."),
    "serve": ("regard.cli.serve", "Serve a page for looking at models while they generate."),
    "study": ("regard.cli.study", "Run experiments that answer questions about attention."),
    "exercises": ("regard.cli.exercises", "Write notebooks of exercises, and grade them."),
    "courses": (
        "regard.cli.courses",
        "List questions of five courses, and where each is answered.",
    ),
    "book": ("regard.cli.book", "Write lessons and answered questions as one offline page."),
    "config": ("regard.cli.config", "Print a recipe as commented TOML."),
    "recipes": ("regard.cli.config", "List the recipes of config and --recipe."),
    "attention": ("regard.cli.attention", "List attention mechanisms, or check your own."),
    "import-hf": ("regard.cli.config", "Import a Hugging Face model."),
    "export-hf": ("regard.cli.config", "Export a run for Hugging Face transformers."),
    "convert": ("regard.cli.convert", "Change the mechanism or the positions of a run."),
    "info": ("regard.cli.config", "Show configuration, provenance and progress of a run."),
}


_OF_MANY_PROCESSES = ("pretrain", "finetune", "train")
"""Commands that torchrun may start."""


class Group(click.Group):
    """A group that prints its help when called bare, and suggests the nearest command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"{name}: no such command; {alternatives(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


class _Regard(Group):
    """Loads a command when it is used, so that --help imports no torch."""

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


_SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True}


@click.group(cls=_Regard, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="regard")
@click.pass_context
def regard(ctx: click.Context) -> None:
    """Build, train, compare and look inside attention-based sequence models."""
    if is_launched() and ctx.invoked_subcommand not in _OF_MANY_PROCESSES:
        raise UserError(f"{ctx.invoked_subcommand}: runs in one process; start it without torchrun")


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit: 0 on success, 2 on a user's mistake, 1 on any other failure."""
    warnings.showwarning = _show_warning
    gc.set_threshold(5000)  # at the default, a short command spends a sixth of its time on it
    if is_launched():  # otherwise each process prints torch's log lines
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal may lack ⁇ and ·. Files and pipes are UTF-8, as all files that are read.
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")
    code = run(arguments)
    gc.freeze()  # at exit, collections of torch's objects would take 0.4 s
    sys.exit(code)


def run(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code. A failure prints one line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        regard.main(arguments, standalone_mode=False, prog_name="regard", obj=arguments)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.UsageError as error:
        return _fail(_usage_message(error), error.exit_code)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _fail("stopped", 130)
    except RegardError as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:
        return _fail(*_explain(error))
    return 0


def _may_report(code: int) -> bool:
    """Return whether this process prints its failure; of torchrun's processes, one does."""
    if not is_launched():
        return True
    from regard.training.processes import join_processes

    try:
        return join_processes().may_report(code)
    except RegardError:  # no others to agree with
        return True


def _usage_message(error: click.UsageError) -> str:
    """Return the error in the arguments, and the command whose help explains them."""
    message = error.format_message().rstrip(".")
    return f"{message}; see {error.ctx.command_path} --help" if error.ctx else message


def _explain(error: OSError) -> tuple[str, int]:
    """Return message and exit code for an error of the operating system."""
    place = f"{error.filename}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"{place}the disk is full; free space and repeat the command, training with --resume",
            1,
        )
    mistakes = (
        FileExistsError,
        FileNotFoundError,
        IsADirectoryError,
        NotADirectoryError,
        PermissionError,
    )
    others = (errno.EROFS, errno.ENAMETOOLONG, errno.ENOTEMPTY)
    if error.errno and (isinstance(error, mistakes) or error.errno in others):
        return f"{place}can't be written: {error.strerror}; choose another place", 2
    reason = next(filter(None, (error.strerror, *error.args)), type(error).__name__)
    return f"{place}{reason}", 1


def _fail(message: str, code: int) -> int:
    if _may_report(code):
        line = " ".join(map(str.strip, message.splitlines()))
        sys.stderr.write(f"regard: {line}\n")  # at once: lines of several processes don't mix
    return code


def _show_warning(message: Warning | str, *_args: Any, **_kwargs: Any) -> None:
    if os.environ.get("RANK", "0") != "0":
        return
    print(f"regard: warning: {message}", file=sys.stderr)
