"""`python -m dgmark_lab.training.storyteller`: train the masked diffusion model."""

import typer

from dgmark_lab.training.commands import command

main = command("storyteller")

if __name__ == "__main__":
    typer.run(main)
