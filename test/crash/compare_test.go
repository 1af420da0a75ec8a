package crash

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/test/kube"
)

// memberWrite is a write that changed an object of the member.
type memberWrite struct{ verb, target, action, version string }

// auditedWrites returns the processes' writes in the audit log, and the targets of those that
// were answered with an error. The test's own writes have other managers, or none.
func auditedWrites(events []kube.AuditEvent) (done []memberWrite, failed map[string]bool) {
	failed = map[string]bool{}
	versions := map[string]bool{}
	for _, e := range events {
		if e.ObjectRef.Resource != "configmaps" || e.ObjectRef.Namespace != namespace || strings.Contains(e.RequestURI, "dryRun=") {
			continue
		}
		var request struct {
			DryRun []string `json:"dryRun"`
		}
		_ = json.Unmarshal(e.RequestObject, &request) // a JSON patch is no object
		var answer struct {
			Metadata struct {
				Name            string            `json:"name"`
				ResourceVersion string            `json:"resourceVersion"`
				Annotations     map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		_ = json.Unmarshal(e.ResponseObject, &answer) // of a delete it is a Status
		w := memberWrite{verb: e.Verb, target: e.ObjectRef.Name, action: answer.Metadata.Annotations["federator.dev/action"], version: answer.Metadata.ResourceVersion}
		switch {
		case len(request.DryRun) > 0:
			continue
		case e.Verb == "delete": // nobody else deletes
			w.action, w.version = "", ""
		case !strings.Contains(e.RequestURI, "fieldManager=federator"):
			continue
		case e.ResponseStatus.Code >= 300:
		case versions[w.version]:
			continue // it has changed nothing
		default:
			versions[w.version] = true
			w.target = answer.Metadata.Name
		}
		if e.ResponseStatus.Code >= 300 {
			if w.target == "" {
				var object struct {
					Metadata struct {
						Name string `json:"name"`
					} `json:"metadata"`
				}
				_ = json.Unmarshal(e.RequestObject, &object)
				w.target = object.Metadata.Name
			}
			failed[w.target] = true
			continue
		}
		done = append(done, w)
	}
	return done, failed
}

// audited returns the writes of the audit log, and those that the watcher has seen although
// they were answered with an error.
func (r *harness) audited() ([]memberWrite, error) {
	r.Helper()
	events, err := r.member.Audit()
	if err != nil {
		return nil, err
	}
	done, failed := auditedWrites(events)
	times := map[string]int{}
	for _, w := range done {
		times[w.target]++
	}
	for target, versions := range r.watcher.changes(r.T) {
		for _, v := range versions[min(times[target], len(versions)):] {
			if !failed[target] {
				return nil, fmt.Errorf("%s has changed without a request: %+v", target, v)
			}
			w := memberWrite{verb: "unanswered", target: target, action: v.action, version: v.resourceVersion}
			if v.deleted {
				w = memberWrite{verb: "delete", target: target}
			}
			r.unanswered++
			done = append(done, w)
		}
		if times[target] > len(versions) {
			return nil, fmt.Errorf("%s has %d writes, and was changed %d times", target, times[target], len(versions))
		}
	}
	return done, nil
}

// compare compares the Actions with the audit log.
func (r *harness) compare() {
	r.Helper()
	actions, err := r.actions()
	if err != nil {
		r.Fatal(err)
	}
	actions = slices.DeleteFunc(actions, func(a v1alpha1.Action) bool { return a.Spec.Binding != binding })
	var done []memberWrite
	r.until("the audit log is complete", func() error {
		r.unanswered = 0
		var err error
		if done, err = r.audited(); err == nil && len(done) < r.violations {
			err = fmt.Errorf("%d writes, want %d", len(done), r.violations)
		}
		return err
	})
	succeeded := map[string]*v1alpha1.Action{} // by target
	for n := range actions {
		a := &actions[n]
		switch was := succeeded[a.Spec.Target.Name]; {
		case a.Status.Phase != v1alpha1.PhaseSucceeded:
			r.Errorf("action %s of %s is %s: %s", a.Name, a.Spec.Target.Name, a.Status.Phase, a.Status.Message)
		case was != nil:
			r.Errorf("%s has two actions that succeeded: %s and %s", a.Spec.Target.Name, was.Name, a.Name)
		default:
			succeeded[a.Spec.Target.Name] = a
		}
	}
	duplicate, lost := 0, 0
	times := map[string]int{}
	for _, w := range done {
		if times[w.target]++; times[w.target] > 1 {
			duplicate++
			r.Errorf("written twice: %+v", w)
		}
		a := succeeded[w.target]
		if a == nil || w.verb != "delete" && (a.Name != w.action || a.Status.ResourceVersion != w.version) || w.verb == "delete" && a.Spec.Verb != "delete" {
			lost++
			r.Errorf("written and not recorded: %+v, %+v", w, a)
		}
	}
	for target, a := range succeeded {
		if times[target] == 0 {
			lost++
			r.Errorf("action %s of %s is recorded as written, which it was not", a.Name, target)
		}
	}
	if len(done) != r.violations || len(actions) != r.violations {
		r.Errorf("%d violations, %d writes, %d actions", r.violations, len(done), len(actions))
	}
	r.Logf("%d corrections, %d writes (%d answered with an error), %d actions: %d duplicate, %d lost",
		r.violations, len(done), r.unanswered, len(actions), duplicate, lost)
}
