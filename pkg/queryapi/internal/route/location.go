package route

import (
	"cmp"

	"k8s.io/apiserver/pkg/endpoints/request"

	"federator.dev/federator/pkg/queryapi/internal/flat"
)

// Location is the part of the fleet that the names of a request refer to.
type Location struct {
	Member    string // <namespace>/<name>, "" for all
	Namespace string // in its members, "" for all and for cluster-scoped objects
	Name      string // in its members, "" for none in particular
	// NoMember says that the names refer to no member: they are not flat names, where
	// these are required.
	NoMember bool
}

// LocationOf returns the location of a request for a resource. A Namespace object is in its
// own namespace, as in request info.
func LocationOf(t Target, info *request.RequestInfo) Location {
	if !t.Flat() {
		return Location{Member: t.Member, Namespace: info.Namespace, Name: info.Name}
	}
	var p Location
	var ok bool
	switch {
	case info.Namespace != "":
		p.Member, p.Namespace, ok = flat.Split(info.Namespace)
		if p.Name = info.Name; info.APIGroup == "" && info.Resource == "namespaces" && info.Name == info.Namespace {
			p.Name = p.Namespace
		}
	case info.Name != "" && info.Verb == "get": // in a list the name is from a field selector
		p.Member, p.Name, ok = flat.Split(info.Name)
	default:
		return p
	}
	if !ok {
		return Location{Name: info.Name, NoMember: true}
	}
	return p
}

// MemberHint says where to send what the query API does not serve: to the API server of
// the named member, or of "the member" without a name.
func MemberHint(member string) string {
	return "send the request to the API server of " + cmp.Or(member, "the member") + ", for example with kubectl --context"
}
