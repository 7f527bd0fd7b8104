"""`python -m im2rec`, and the scripts `im2rec` and `im2rec-legacy`."""

import signal
import sys


def main() -> None:
    """Runs the command line; until it is loaded, an interrupt just ends the process."""
    _let_interrupts_end()
    from im2rec.cli import main

    main()


def legacy() -> None:
    """Runs an old command line, likewise."""
    _let_interrupts_end()
    from im2rec.legacy import main

    main(sys.argv[1:])


def _let_interrupts_end() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
