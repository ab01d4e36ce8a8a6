"""Steps environments with a policy, and writes rollouts."""
