// Package assets builds the control-plane binaries that test/kube runs, from
// Go modules, once, into a cache outside the source tree.
//
// The binaries are upstream's, at the versions that the build modules under
// test/kube/build pin. A cache directory is named after a hash of those
// modules, the platform and the Go version, so a stale binary is never used.
// Each binary is renamed into place when complete, and a file lock makes
// parallel test processes build once. A binary found in the directory that
// KUBEBUILDER_ASSETS names is used as it is.
//
// [Ensure] may be called from several goroutines and processes at once.
package assets
