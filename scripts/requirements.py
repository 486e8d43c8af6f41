"""Prints what a development environment needs: the dependencies of the package and of its ``dev`` extra.

`maturin develop` installs the package itself; asking pip for ``.[dev]`` would build it a second time.
"""

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
sys.stdout.write("\n".join([*project["dependencies"], *project["optional-dependencies"]["dev"]]) + "\n")
