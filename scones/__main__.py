"""`python -m scones` is the command line."""

from scones.cli import main

if __name__ == "__main__":
    main()
