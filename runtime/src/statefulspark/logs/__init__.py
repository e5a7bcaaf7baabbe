"""Log records of the driver and of slots: levels, JSON lines, and the socket by which slots of one machine send them to the driver."""
