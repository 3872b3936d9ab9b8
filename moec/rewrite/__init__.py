"""Declarative rewrites: a rule is two terms; matcher, replacement, documentation and law tests follow from them."""
