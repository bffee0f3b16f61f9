"""The `dgmark` command, also as `python -m dgmark`. An interruption while its modules load is not an error."""

import sys


def main() -> None:
    """Entry point of the `dgmark` command."""
    try:
        from dgmark.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        sys.exit(130)  # what shells say of a process that Ctrl-C ended


if __name__ == "__main__":
    main()
