"""``python -m laminar`` is the ``laminar`` command."""

from laminar.cli import main

if __name__ == "__main__":
    main()
