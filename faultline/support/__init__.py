"""`faultline support`: what is gathered, redacted and packed for whoever helps."""
