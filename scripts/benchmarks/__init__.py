"""What `scripts/bench` and `scripts/soak` measure, with what, and how it is reported. No part of the package."""
