"""What fails under the workload."""
