// Package crds holds tests of the CustomResourceDefinitions in charts/federator on
// a real kube-apiserver: what they admit, what they refuse and in which words, and
// what kubectl shows.
package crds
