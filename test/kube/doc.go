// Package kube runs real Kubernetes control planes on this machine for tests,
// benchmarks and demonstrations: a hub and any number of members, each with
// its own etcd, kube-apiserver, certificate authority and TCP proxy, and with
// kube-controller-manager, kube-scheduler and kwok where requested.
//
//	fleet, err := kube.Start(ctx, kube.Options{Members: 3})
//	...
//	defer fleet.Stop()
//	m := fleet.Members[0]
//	err = fleet.Hub.Register(ctx, kube.Cluster{Namespace: "fleet", Name: "eu-1", Kubeconfig: m.Kubeconfig()})
//	m.Proxy.Set(tcpproxy.Mode{State: tcpproxy.BlackHole}) // a dead network
//	m.APIServer.Kill()                                    // a dead server
//	m.APIServer.Start(ctx)                                // and back, same port, same data
//
// The binaries are upstream's and are built from Go modules when missing (see
// package assets); `make kube` does it ahead of time. RBAC is on, and TLS is
// verified against the control plane's own authority. Kubeconfigs lead through
// the proxy; DirectRESTConfig goes around it.
//
// # Lifetime
//
// Processes and goroutines belong to the [Fleet]. They end with the context
// given to [Start] or by [Fleet.Stop], which waits for all of them. On Linux
// the kernel also kills the processes if the parent dies.
//
// # Concurrency
//
// All methods may be called from any goroutine. [Fleet.Members] grows by
// [Fleet.AddMember], which must not run beside readers of that field.
//
// # Trade-offs
//
// Everything listens on 127.0.0.1, at ports outside the ephemeral range, so
// that a killed server finds its port free again. etcd speaks plain HTTP and
// does not fsync: data survives a killed process, not a crashed machine. Each
// control plane has an etcd of its own unless Options.SharedEtcd says
// otherwise: it boots no slower, costs some 40 MB, keeps resourceVersions apart
// as real clusters do, and can be killed alone. Without controllers the
// aggregated ClusterRoles (admin, edit, view) have no rules, namespaces have no
// default service account, and nothing is garbage collected. With them, the garbage
// collector takes half a minute to notice a new CRD. The package needs
// a Unix.
package kube
