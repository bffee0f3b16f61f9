"""`python -m training.storyteller`: train the masked diffusion model; see README.md here."""

import typer

from training.commands import command

main = command("storyteller")

if __name__ == "__main__":
    typer.run(main)
