"""`python -m distcommit` is the command `distcommit`."""

from distcommit.cli.command_process import command_process


def main() -> None:
    """Run the command line as the whole process. The console entry point."""
    with command_process():
        from distcommit.cli.main import main as command_line  # noqa: PLC0415 - Ctrl-C may come while it is imported

        command_line()


if __name__ == "__main__":
    main()
