#!/usr/bin/env python3
"""The original name of `paddlejob start`."""

import sys

from paddlejob.cli.main import main

main(["start", *sys.argv[1:]], prog_name="start_paddle.py")
