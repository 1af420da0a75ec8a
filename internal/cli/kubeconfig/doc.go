// Package kubeconfig is the command that writes a kubeconfig for the query API.
//
// It sends no token to a server whose certificate it has not verified.
package kubeconfig
