"""A whole installation under load, hit at random for as long as one wants, and then audited from outside."""
