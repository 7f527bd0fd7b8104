"""`python -m im2rec`."""

from im2rec.cli import main

if __name__ == "__main__":
    main()
