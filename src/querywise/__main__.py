"""`python -m querywise` is the command `querywise`."""

from querywise.cli import main

if __name__ == "__main__":
    main()
