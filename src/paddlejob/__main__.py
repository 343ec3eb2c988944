"""`python -m paddlejob`."""

from paddlejob.cli.main import main

main(prog_name="paddlejob")
