// Package crds holds tests of the CustomResourceDefinitions in charts/federator on
// a real kube-apiserver: what they admit, what they reject and with which messages, and
// what kubectl shows.
package crds
