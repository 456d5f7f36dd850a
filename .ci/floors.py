"""Print the lowest version of each dependency that pyproject.toml allows, as requirements for pip."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8"))["project"]
extras = project["optional-dependencies"]
for requirement in (*project["dependencies"], *extras["fit"], *extras["site"], *extras["smoke"]):
    name, floor = requirement.split(">=")
    print(f"{name}=={floor}")
