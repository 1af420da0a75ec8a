package resources

import (
	"fmt"
	"strings"
)

// maxWarnedMembers bounds the members that a warning names.
const maxWarnedMembers = 5

// warnOfOtherVersions warns of members whose objects are at another version than requested:
// custom resources are converted by their member only, and it does not serve that version.
func (q *request) warnOfOtherVersions(visible []string) {
	WarnOfVersions(q.otherVersions(visible), q.resource.Resource.GroupResource().String(), q.resource.Resource.GroupVersion().String(), q.warn)
}

// otherVersions returns these members by the version that their objects are at.
func (q *request) otherVersions(visible []string) map[string][]string {
	if q.format.shape == metadataOnly || q.format.shape == table {
		return nil // without versions
	}
	others := map[string][]string{}
	for _, member := range visible {
		scope, ok := q.snapshot.Scope(member, q.resource.Kind)
		if ok && scope.Version != "" && !q.resource.Converts(scope.Version) {
			others[scope.Version] = append(others[scope.Version], member)
		}
	}
	return others
}

// WarnOfVersions warns of members whose objects are at other versions than requested.
func WarnOfVersions(others map[string][]string, resource, requested string, warn func(string)) {
	for version, members := range others {
		named := strings.Join(members[:min(len(members), maxWarnedMembers)], ", ")
		if more := len(members) - maxWarnedMembers; more > 0 {
			named += fmt.Sprintf(" and %d more", more)
		}
		warn(fmt.Sprintf("%s of %s are at %s: these members do not serve %s", resource, named, version, requested))
	}
}
