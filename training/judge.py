"""`python -m training.judge`: train the autoregressive judge of perplexity; see training/README.md."""

import typer

from training.commands import command

main = command("judge")

if __name__ == "__main__":
    typer.run(main)
