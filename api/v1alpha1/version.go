package v1alpha1

import "federator.dev/federator/api"

// Version is the name of this version, and GroupVersion the apiVersion of its
// objects.
const (
	Version      = "v1alpha1"
	GroupVersion = api.GroupName + "/" + Version
)
