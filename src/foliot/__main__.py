"""`python -m foliot` is the `foliot` command."""

from foliot.cli import main

if __name__ == "__main__":
    main()
