"""What the tests of `e2e` stand on: a cluster, images, an operator, a store, jobs, and an oracle of their output."""
