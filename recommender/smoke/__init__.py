"""Launch an artefact with the installed LMDeploy, check its answers and measure it."""
