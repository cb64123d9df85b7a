"""`python -m tuner`: the command `tune`, where another package has put its own in that place."""

from tuner.cli import main

if __name__ == "__main__":
    main()
