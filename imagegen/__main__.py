"""`python -m imagegen`."""

from imagegen.cli.main import main

main()
