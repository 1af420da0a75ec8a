package v1alpha1

import "federator.dev/federator/api"

// Version is the name of this version, and GroupVersion what an object of it
// has as apiVersion.
const (
	Version      = "v1alpha1"
	GroupVersion = api.GroupName + "/" + Version
)
