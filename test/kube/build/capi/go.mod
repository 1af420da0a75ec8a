// Cluster API, of which only the CRD files are used: nothing is compiled.
module federator.dev/federator/test/kube/build/capi

go 1.26.0

require sigs.k8s.io/cluster-api v1.14.2
