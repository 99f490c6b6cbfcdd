"""The domain of Nightmill: values, states, rules and use cases over ports. Standard library only."""
