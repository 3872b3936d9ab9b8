"""``python -m moec``: the command line."""

from moec.cli import main

if __name__ == "__main__":
    main()
