package aggregate

import (
	"cmp"
	"strings"
)

// Kind is a fleet kind as kubectl writes it: "Pod", "Deployment.apps",
// "Ingress.networking.k8s.io". The version is not part of it: a fleet kind is
// held at one version, which the scope records.
type Kind string

// MakeKind joins a kind and its API group.
func MakeKind(kind, group string) Kind {
	if group == "" {
		return Kind(kind)
	}
	return Kind(kind + "." + group)
}

// Split returns the kind and its API group ("" for the core group).
func (k Kind) Split() (kind, group string) {
	kind, group, _ = strings.Cut(string(k), ".")
	return kind, group
}

// Ref identifies one object of the fleet. Namespace is "" for cluster-scoped objects.
type Ref struct {
	Member    string `json:"member"` // <namespace>/<name> of the Cluster
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns "member kind namespace/name", for messages.
func (r Ref) String() string {
	return r.Member + " " + string(r.Kind) + " " + r.Namespace + "/" + r.Name
}

func compareRefs(a, b Ref) int {
	return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Member, b.Member),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// Label is one label of an object or a member.
type Label struct{ Key, Value string }

// Owner is one entry of metadata.ownerReferences.
type Owner struct {
	APIVersion, Kind, Name, UID string
	Controller                  bool
}

// RedactedAnnotation marks, with "true", the body of an object without the values that it has
// in its member.
const RedactedAnnotation = "federator.dev/redacted"

// Record is one object as a member served it, decoded as far as the index needs: its keys,
// and the body. A Record and everything it points to belong to the decoder that filled it
// and are overwritten by its next call; the index copies what it stores.
type Record struct {
	Namespace, Name string
	UID             string
	ResourceVersion string
	Labels          []Label // sorted by key, keys unique
	Owners          []Owner // in the object's order

	// Body is canonical JSON: no insignificant white space, keys of every
	// object sorted by their bytes and unique, strings escaped only where
	// JSON demands it, no metadata.managedFields; apiVersion and kind are
	// always present.
	Body []byte

	// Update says that the object is known to have changed, and may soon change
	// again: its body is encoded fast rather than small until [Index.Recompress] finds it unchanged.
	Update bool
}
