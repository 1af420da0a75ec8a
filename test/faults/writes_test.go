package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// corrected says that nothing is left to correct, and that all corrections are in the index.
func (r *rig) corrected(ctx context.Context) error {
	for _, m := range r.members {
		body, err := get(ctx, m.direct, m.host+configMaps+"?labelSelector=wanted")
		if err != nil {
			return err
		}
		var list struct{ Items []listed }
		if err := json.Unmarshal(body, &list); err != nil {
			return err
		}
		for _, o := range list.Items {
			if l := o.Metadata.Labels; l["is"] != l["wanted"] {
				return fmt.Errorf("%s of %s is %q, wanted %q", o.Metadata.Name, m.name, l["is"], l["wanted"])
			}
		}
	}
	return nil
}

// writes returns what federator has written to the members since it was asked last, and which of it
// is wrong: what is written changes what is wanted into what is, once for each object.
func (r *rig) writes() (right int, wrong []string, err error) {
	for _, m := range r.members {
		events, err := m.Audit()
		if err != nil {
			return right, wrong, err
		}
		seen := map[string]string{}
		for i, e := range events {
			if !federators(e.User.Username) || strings.Contains(e.RequestURI, "dryRun=All") || e.ResponseStatus.Code >= 300 || accessReview(e.ObjectRef.Resource) {
				continue
			}
			var o listed
			_ = json.Unmarshal(e.ResponseObject, &o) // what is no object is wrong below
			why := ""
			l := o.Metadata.Labels
			switch {
			case e.Verb != strings.ToLower(http.MethodPatch) || e.ObjectRef.Resource != "configmaps" || !strings.HasPrefix(e.ObjectRef.Name, "fix-"):
				why = "nobody wants it"
			case l["is"] == "" || l["is"] != l["wanted"]:
				why = fmt.Sprintf("it is %q, wanted %q", l["is"], l["wanted"])
			case seen[o.Metadata.UID] == l["is"]:
				why = "it was written before"
			}
			seen[o.Metadata.UID] = l["is"]
			if i < m.audited {
				continue
			}
			if why == "" {
				right++
				continue
			}
			wrong = append(wrong, fmt.Sprintf("%s of %s %s on %s: %s", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Name, m.name, why))
		}
		m.audited = len(events)
	}
	return right, wrong, nil
}

// accessReview reports whether a resource asks a question by a write.
func accessReview(resource string) bool { return strings.HasSuffix(resource, "reviews") }

// federators reports whether a user is federator, by a certificate or by a token.
func federators(name string) bool {
	return name == user || name == "system:serviceaccount:default:"+user
}
