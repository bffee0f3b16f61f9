"""`python -m dgmark_lab.training.judge`: train the autoregressive judge of perplexity."""

import typer

from dgmark_lab.training.commands import command

main = command("judge")

if __name__ == "__main__":
    typer.run(main)
