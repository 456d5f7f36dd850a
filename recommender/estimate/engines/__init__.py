"""What differs between LMDeploy's engines: memory, and how passes are made up."""
