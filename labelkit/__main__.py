"""`python -m labelkit` is the `labelkit` command."""

from labelkit.cli import main

if __name__ == "__main__":
    main()
