"""Stand-in for LMDeploy's command line package."""
