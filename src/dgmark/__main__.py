"""`python -m dgmark` is the `dgmark` command."""

from dgmark.cli import main

if __name__ == "__main__":
    main()
