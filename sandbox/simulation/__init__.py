"""Clusters that break on purpose: fault campaigns as raw records in shippers' formats, with the truth beside them.

It models the cluster (hardware, drivers, collectives, controllers, shippers), never what Faultline makes of it: nothing here
knows the detector or the correlator, so what they find can be held against what was done.
"""
