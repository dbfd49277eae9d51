"""What Faultline says about itself: metrics, traces, and what its logs may hold."""
