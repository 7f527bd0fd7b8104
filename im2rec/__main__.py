"""`python -m im2rec`, and the `im2rec` script."""

import signal


def main() -> None:
    """Runs the command line; until it is loaded, an interrupt just ends the process."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from im2rec.cli import main

    main()


if __name__ == "__main__":
    main()
