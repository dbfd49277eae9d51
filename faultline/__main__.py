"""`python -m faultline`: the same as the `faultline` command."""

from faultline.cli import main

main()
