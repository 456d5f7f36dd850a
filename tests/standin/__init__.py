"""A stand-in for a machine with NVIDIA cards and LMDeploy; see machine.py."""
