"""The benches behind `scripts/bench`: what is measured, with what, and how it is reported. No part of the package."""
