"""Launches an artefact with the real LMDeploy, proves its answers, measures it and compares it with the prediction."""
