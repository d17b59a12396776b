"""`python -m distcommit` is the command `distcommit`."""

from distcommit.cli.main import main

if __name__ == "__main__":
    main()
