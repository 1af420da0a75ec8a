// Package gitops says which objects of members a GitOps controller manages, as far as that is
// sure: an Argo CD Application, a Flux Kustomization or a HelmRelease that the configuration
// trusts lists them in its own status, and it is known of which cluster.
//
// What everybody may write, such as labels and annotations of the objects themselves, is not
// considered here. An Application's destination is resolved by its server's URL, or as the
// member that has the Application; one by name is not, since the Secret that resolves it holds
// values that are not in the index. A Kustomization or HelmRelease with a kubeConfig applies to
// another cluster, which its Secret names, and resolves to none.
//
// While a scope of trusted objects is incomplete, nobody knows what they own: [Owners.Of] says
// so for each member whose objects they could.
//
// The targets of trusted objects are kept by target and updated with the deltas of the index.
// Owners reads what is new before each answer, so an answer is as of the index then.
package gitops
