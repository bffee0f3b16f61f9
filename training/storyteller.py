"""`python -m training.storyteller`: train the masked diffusion model; see training/README.md."""

import typer

from training.commands import command

main = command("storyteller")

if __name__ == "__main__":
    typer.run(main)
