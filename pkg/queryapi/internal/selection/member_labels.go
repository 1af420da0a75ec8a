package selection

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/api"
	"federator.dev/federator/pkg/aggregate"
)

// Keys of virtual labels: see the package's documentation.
const (
	MemberKey          = api.MemberKey
	MemberNamespaceKey = api.MemberKey + "-namespace"
	MemberNameKey      = api.MemberKey + "-name"
)

// memberGroup is the prefix of a Cluster's label, alone or after the label's own prefix.
const memberGroup = "member." + api.GroupName

// clusterLabel returns the key of the Cluster's label that a virtual label refers to.
func clusterLabel(key string) (string, bool) {
	prefix, name, ok := strings.Cut(key, "/")
	if !ok {
		return "", false
	}
	if prefix == memberGroup {
		return name, true
	}
	if own, ok := strings.CutSuffix(prefix, "."+memberGroup); ok {
		return own + "/" + name, true
	}
	return "", false
}

// IsMemberLabel reports whether a key is a virtual label of members.
func IsMemberLabel(key string) bool {
	switch key {
	case MemberKey, MemberNamespaceKey, MemberNameKey:
		return true
	}
	_, ok := clusterLabel(key)
	return ok
}

// memberLabels implements labels.Labels for a member.
type memberLabels struct{ *aggregate.Member }

var _ labels.Labels = memberLabels{}

// Lookup returns the value of a virtual label.
func (m memberLabels) Lookup(key string) (string, bool) {
	switch key {
	case MemberKey:
		return strings.Replace(m.Name, "/", ".", 1), true
	case MemberNamespaceKey:
		namespace, _, _ := strings.Cut(m.Name, "/")
		return namespace, true
	case MemberNameKey:
		_, name, _ := strings.Cut(m.Name, "/")
		return name, true
	}
	own, ok := clusterLabel(key)
	if !ok {
		return "", false
	}
	for _, l := range m.Labels {
		if l.Key == own {
			return l.Value, true
		}
	}
	return "", false
}

// Has reports whether there is a virtual label.
func (m memberLabels) Has(key string) bool { _, ok := m.Lookup(key); return ok }

// Get returns the value of a virtual label, "" if it is absent.
func (m memberLabels) Get(key string) string { v, _ := m.Lookup(key); return v }

// objectLabels implements labels.Labels for an object.
type objectLabels struct{ aggregate.Object }

var _ labels.Labels = objectLabels{}

// Lookup returns the value of a label.
func (o objectLabels) Lookup(key string) (string, bool) { return o.Label(key) }

// Has reports whether there is a label.
func (o objectLabels) Has(key string) bool { _, ok := o.Label(key); return ok }

// Get returns the value of a label, "" if it is absent.
func (o objectLabels) Get(key string) string { v, _ := o.Label(key); return v }

// ByName returns those of some members that a label selector can select by what their names say:
// nothing else is known of members that nobody answers for.
func ByName(labelSelector string, members []string) []string {
	requirements, err := labels.ParseToRequirements(labelSelector)
	if err != nil {
		return members
	}
	requirements = slices.DeleteFunc(requirements, func(r labels.Requirement) bool {
		return r.Key() != MemberKey && r.Key() != MemberNamespaceKey && r.Key() != MemberNameKey
	})
	return slices.DeleteFunc(slices.Clone(members), func(member string) bool {
		of := memberLabels{&aggregate.Member{Name: member}}
		return slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return !r.Matches(of) })
	})
}
