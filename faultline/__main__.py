"""`python -m faultline`: the same as the `faultline` command."""

from faultline.cli.main import main

main()
