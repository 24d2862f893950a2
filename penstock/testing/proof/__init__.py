"""The prover: runs a topology in memory in many ways that must give equal results, and explains which do not."""
