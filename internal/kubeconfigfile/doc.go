// Package kubeconfigfile names and writes the kubeconfigs that lead to the query API.
//
// A server without a hub writes one for its user; with a hub, only the authority of a
// certificate that the server made itself is written. federator kubeconfig reads both.
package kubeconfigfile
