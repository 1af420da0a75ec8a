// Package objects reads what remediate needs from decoded Kubernetes objects, compares
// and hashes their content, and finds the inverse of a change. Its functions change
// nothing that they are given.
package objects
