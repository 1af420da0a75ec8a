package remediate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"federator.dev/federator/test/kube"
)

// auditedWrite is a write in the member's audit log that changed an object.
type auditedWrite struct {
	verb, action string // the action in the object's annotation
	version      string
	manager      bool // by federator
}

// audited returns the writes that changed an object of the fixture's namespace, of any
// client, in order.
func (s *fixture) audited(resource, name string) []auditedWrite {
	s.Helper()
	events, err := shared.Fleet.Members[0].Audit()
	if err != nil {
		s.Fatal(err)
	}
	return changes(events, resource, s.ns, name)
}

// changes are the writes of an audit log that have changed an object.
func changes(events []kube.AuditEvent, resource, namespace, name string) []auditedWrite {
	var found []auditedWrite
	for _, e := range events {
		if e.ObjectRef.Resource != resource || e.ObjectRef.Namespace != namespace || e.ResponseStatus.Code >= 300 || strings.Contains(e.RequestURI, "dryRun=") {
			continue
		}
		var request struct {
			DryRun []string `json:"dryRun"`
		}
		var answer struct {
			Metadata struct {
				Name            string            `json:"name"`
				ResourceVersion string            `json:"resourceVersion"`
				Annotations     map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		_ = json.Unmarshal(e.RequestObject, &request) // a JSON patch is no object
		_ = json.Unmarshal(e.ResponseObject, &answer) // of another shape where nothing is returned
		if e.ObjectRef.Name != name && (e.Verb != "create" || answer.Metadata.Name != name) || len(request.DryRun) > 0 {
			continue
		}
		w := auditedWrite{
			verb: e.Verb, action: answer.Metadata.Annotations[actionAnnotation], version: answer.Metadata.ResourceVersion,
			manager: strings.Contains(e.RequestURI, "fieldManager=federator"),
		}
		if e.Verb != "delete" && slices.ContainsFunc(found, func(o auditedWrite) bool { return o.version == w.version }) {
			continue // a no-op
		}
		found = append(found, w)
	}
	return found
}

// expectWrites waits until the audit log has the writes that there should be, and fails
// if it has others. Each is a verb, and "by us" or "by others".
func (s *fixture) expectWrites(resource, name string, want ...string) {
	s.Helper()
	var got []string
	if err := until(func() error {
		got = nil
		for _, w := range s.audited(resource, name) {
			by := "by others"
			if w.manager {
				by = "by us"
			}
			got = append(got, w.verb+" "+by)
		}
		if len(got) < len(want) {
			return fmt.Errorf("writes %q, want %q", got, want)
		}
		return nil
	}); err != nil {
		s.Fatal(err)
	}
	if !slices.Equal(got, want) {
		s.Errorf("writes of %s %s: %q, want %q", resource, name, got, want)
	}
}
