// Package apiserver is as much of a Kubernetes API server as a hub and members of a
// simulation need, in memory: an [http.RoundTripper] without sockets, goroutines or timers.
// A request is executed, whole, when it is made. Events of watches wait until somebody
// delivers them, unless the server delivers them at once.
//
// It gets, lists (pages, field and label selectors, Tables), watches, creates, updates,
// patches (JSON patch, merge patch, server-side apply with managed fields), and deletes,
// with dry runs, strict field validation, generations, status subresources and
// preconditions, one version of each kind. What it does is held to a kube-apiserver by the
// contract test. It knows no admission, authorization, namespaces, finalizers or
// validation beyond the types of fields; custom resources are not validated at all.
package apiserver
