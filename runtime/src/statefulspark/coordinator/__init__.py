"""The driver's side of the batch protocol: batches, slots, checkpoints and what is durable of them."""
