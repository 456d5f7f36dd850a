"""Start, watch and stop processes; read the GPU and the host."""
