"""HTTP from outside: hooks of other systems, Slack's requests and the console. Nothing is decided here."""
