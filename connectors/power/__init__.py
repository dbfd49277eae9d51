"""Power of nodes, and machines given and taken: BMCs by Redfish, and the operator's own tool by a signed hook."""
