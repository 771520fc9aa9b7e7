"""Durable workflows for people who work in notebooks."""
