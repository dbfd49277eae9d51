"""Every process in a container of the project's own image, as the manifests and the compose file put it there."""
