"""Sorts a batch's rows into the order in which functions see them."""
