"""What all suites share: the option `--all`."""

pytest_plugins = ["support.left_out"]
