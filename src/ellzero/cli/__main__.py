"""Lets `python -m ellzero.cli` stand for `ellzero`."""

import sys

from ellzero.cli.main import main

sys.exit(main())
