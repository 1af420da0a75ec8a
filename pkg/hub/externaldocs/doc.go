// Package externaldocs connects the hub with the documents from outside the fleet (package externaldata): what PolicySources say of
// them, ConfigMaps of federator's namespace, and what statuses say.
//
// A ConfigMap is a document only if it has the label federator.dev/external-data: "true": who may name documents in PolicySources need
// not be allowed to read everything in federator's namespace.
//
// # Concurrency
//
// ConfigMaps.Run owns one informer, which only says what has changed: each read is a request to the hub, so that how old a
// document is does not depend on a watch. Everything else is a function of its arguments.
package externaldocs
