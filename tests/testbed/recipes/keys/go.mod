module faultline.dev/testbed/keys

go 1.24.0
