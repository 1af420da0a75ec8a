package resources

import (
	"fmt"
	"strings"

	"k8s.io/apiserver/pkg/warning"
)

// maxWarnedMembers bounds the members that a warning names.
const maxWarnedMembers = 5

// warnOfOtherVersions warns of members whose objects are at another version than requested:
// custom resources are converted by their member only, and it does not serve that version.
func (q *request) warnOfOtherVersions(visible []string) {
	if q.format.shape == metadataOnly || q.format.shape == table {
		return // without versions
	}
	others := map[string][]string{}
	for _, member := range visible {
		scope, ok := q.snapshot.Scope(member, q.resource.Kind)
		if ok && scope.Version != "" && !q.resource.Converts(scope.Version) {
			others[scope.Version] = append(others[scope.Version], member)
		}
	}
	for version, members := range others {
		named := strings.Join(members[:min(len(members), maxWarnedMembers)], ", ")
		if more := len(members) - maxWarnedMembers; more > 0 {
			named += fmt.Sprintf(" and %d more", more)
		}
		warning.AddWarning(q.r.Context(), "", fmt.Sprintf("%s of %s are at %s: these members do not serve %s",
			q.resource.Resource.GroupResource(), named, version, q.resource.Resource.GroupVersion()))
	}
}
