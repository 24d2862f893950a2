"""The prover: runs a topology in memory in many ways that must all come to the same, and says which do not, and why."""
