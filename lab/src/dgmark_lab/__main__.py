"""`python -m dgmark_lab` is the `dgmark-lab` command."""

from dgmark_lab.cli import main

if __name__ == "__main__":
    main()
