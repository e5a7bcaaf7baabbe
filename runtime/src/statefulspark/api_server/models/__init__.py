"""Requests and answers of the API: models with the descriptions of its OpenAPI document."""
