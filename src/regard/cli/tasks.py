"""regard tasks"""

import click


@click.command()
def tasks() -> None:
    """What a model can be trained for, each by `regard train TASK`."""
    from regard.runs.recipes import TASKS

    about = {
        "questions": "Questions of a file → answers.",
        "text": "Any text → what follows.",
    }
    about |= {name: (type(recipe.task).__doc__ or "") for name, recipe in TASKS.items()}
    for name, text in about.items():
        click.echo(f"{name:<16}{text.splitlines()[0]}")
