"""Lets `python -m ellzero` stand for `ellzero`."""

import sys

from ellzero.cli.main import main

sys.exit(main())
