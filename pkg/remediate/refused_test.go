package remediate

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
)

// TestExecutor_FailsRefusedWritesAtOnce: an admission policy of the member refuses, with a
// long message.
func TestExecutor_FailsRefusedWritesAtOnce(t *testing.T) {
	s := newFixture(t)
	s.create("ValidatingAdmissionPolicy.admissionregistration.k8s.io", `{"metadata":{"name":"`+s.ns+`"},"spec":{
		"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["UPDATE"],"resources":["configmaps"]}]},
		"matchConditions":[{"name":"marked","expression":"has(object.metadata.labels) && 'refuse' in object.metadata.labels"}],
		"validations":[{"expression":"!('bad' in object.data)","message":"no `+strings.Repeat("never ", 500)+`"}]}}`)
	s.create("ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io", `{"metadata":{"name":"`+s.ns+`"},"spec":{"policyName":"`+s.ns+`","validationActions":["Deny"]}}`)
	object := s.create("ConfigMap", `{"metadata":{"name":"one","labels":{"refuse":"yes"}},"data":{"a":"1"}}`)
	if err := until(func() error { // it takes effect a moment later
		i := s.intentFor(object, patch(`{"data":{"bad":"1"}}`))
		if answer := s.try(i).DryRun; answer != v1alpha1.DryRunRefused {
			return fmt.Errorf("%s, want Refused", answer)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	a := s.execute(s.intentFor(object, patch(`{"data":{"bad":"1"}}`)))
	if a.Phase != v1alpha1.PhaseFailed || !strings.Contains(a.Message, "denied request: no never") || len(a.Message) != maxMessage || a.Attempts != 1 {
		t.Errorf("%s after %d attempts, a message of %d bytes: %s", a.Phase, a.Attempts, len(a.Message), a.Message)
	}
	if known := s.recorded(a.Name); known == nil || known.Phase != v1alpha1.PhaseFailed || known.Message != a.Message {
		t.Errorf("recorded %+v", known)
	}
	if a := s.execute(s.intentFor(object, patch(`{"data":{"good":"1"}}`))); a.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("what it lets through: %s %s", a.Phase, a.Message)
	}
	s.expectWrites("configmaps", "one", "create by others", "patch by us")
}

// TestExecutor_RetriesTemporaryErrors: the member's webhook cannot be reached, which says
// nothing about the correction.
func TestExecutor_RetriesTemporaryErrors(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.create("ValidatingWebhookConfiguration.admissionregistration.k8s.io", `{"metadata":{"name":"away"},"webhooks":[{"name":"away.example.com",
		"clientConfig":{"url":"https://127.0.0.1:1/"},"sideEffects":"None","admissionReviewVersions":["v1"],"timeoutSeconds":1,
		"objectSelector":{"matchLabels":{"away":"yes"}},
		"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["UPDATE"],"resources":["configmaps"]}]}]}`)
	object := s.create("ConfigMap", `{"metadata":{"name":"one","labels":{"away":"yes"}},"data":{"a":"1"}}`)
	i := s.intentFor(object, patch(`{"data":{"a":"2"}}`))
	if err := until(func() error {
		_, err := s.objects("ConfigMap").Patch(t.Context(), "one", "application/merge-patch+json", []byte(`{"data":{"x":"y"}}`), tryOnly)
		if err == nil {
			return errors.New("the webhook is not called")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	a := s.execute(i)
	if a.Phase != v1alpha1.PhaseFailed || a.Attempts != maxAttempts || !strings.Contains(a.Message, "tried 6 times") || !strings.Contains(a.Message, "away.example.com") {
		t.Errorf("%s after %d attempts: %s", a.Phase, a.Attempts, a.Message)
	}

	// It recovers while the correction is retried: the intent is not lost.
	calls := 0
	s.member.before = func(r *http.Request) error {
		if calls++; calls == 3 {
			s.remove("ValidatingWebhookConfiguration.admissionregistration.k8s.io", "away")
		}
		return nil
	}
	a = s.execute(i)
	for n := 0; n < 5 && a.Phase == v1alpha1.PhaseFailed; n++ { // the API server asks it for a moment yet
		a = s.execute(i)
	}
	if a.Phase != v1alpha1.PhaseSucceeded || a.Name != i.actionName() {
		t.Errorf("%s: %s", a.Phase, a.Message)
	}
	if known := s.recorded(a.Name); known.Phase != v1alpha1.PhaseSucceeded || known.Message != "" {
		t.Errorf("recorded %+v", known)
	}
	s.expectWrites("configmaps", "one", "create by others", "patch by us")
}

// TestExecutor_Impersonates: with no more than that user's rights.
func TestExecutor_Impersonates(t *testing.T) {
	s := newFixture(t)
	s.create("Role.rbac.authorization.k8s.io", `{"metadata":{"name":"alice"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","patch"]}]}`)
	s.create("RoleBinding.rbac.authorization.k8s.io", `{"metadata":{"name":"alice"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"alice"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"alice"}]}`)
	object := s.create("ConfigMap", fmt.Sprintf(oneMap, "one"))
	for _, c := range []struct {
		user   string
		remedy policy.Remedy
		phase  v1alpha1.ActionPhase
	}{
		{"bob", patch(`{"data":{"a":"2"}}`), v1alpha1.PhaseFailed},
		{"alice", policy.Remedy{Action: "delete"}, v1alpha1.PhaseFailed},
		{"alice", patch(`{"data":{"a":"2"}}`), v1alpha1.PhaseSucceeded},
	} {
		i := s.intentFor(object, c.remedy)
		i.ActAs = c.user
		var a *Action
		if err := until(func() error { // rights take effect a moment later
			if a = s.execute(i); a.Phase != c.phase {
				return fmt.Errorf("%s %s: %s %s, want %s", c.user, c.remedy.Action, a.Phase, a.Message, c.phase)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if c.phase == v1alpha1.PhaseFailed && !strings.Contains(a.Message, fmt.Sprintf("User %q cannot", c.user)) {
			t.Errorf("%s: %s", c.user, a.Message)
		}
		if known := s.recorded(a.Name); known == nil || known.ActAs != c.user || known.Phase != c.phase {
			t.Errorf("%s: recorded %+v", c.user, known)
		}
	}
}

// TestExecutor_DetectsConcurrentChanges: others write between any two requests of a correction.
func TestExecutor_DetectsConcurrentChanges(t *testing.T) {
	s := newFixture(t)
	for _, c := range []struct {
		name, at string // the request before which they write: its method, and "try" for a dry run
		remedy   policy.Remedy
		exists   bool
		recorded bool
	}{
		{name: "patch", at: "PATCH", remedy: patch(`{"data":{"a":"3"}}`), exists: true, recorded: true},
		{name: "patch-dry", at: "try PATCH", remedy: patch(`{"data":{"a":"3"}}`), exists: true},
		{name: "json", at: "PATCH", remedy: patch(`[{"op":"add","path":"/data/a","value":"3"}]`), exists: true, recorded: true},
		{name: "apply", at: "PATCH", remedy: apply(`{"apiVersion":"v1","data":{"c":"3"}}`), exists: true, recorded: true},
		{name: "apply-dry", at: "try PATCH", remedy: apply(`{"apiVersion":"v1","data":{"c":"3"}}`), exists: true},
		{name: "create", at: "POST", remedy: apply(`{"apiVersion":"v1","data":{"c":"3"}}`), recorded: true},
		{name: "create-dry", at: "try POST", remedy: apply(`{"apiVersion":"v1","data":{"c":"3"}}`)},
		{name: "delete", at: "DELETE", remedy: policy.Remedy{Action: "delete"}, exists: true, recorded: true},
	} {
		for _, how := range []string{"changed", "replaced"} {
			name := c.name + "-" + how
			if !c.exists && how == "replaced" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				s.T = t
				c.remedy.Target = policy.Ref{Kind: "ConfigMap", Namespace: s.ns, Name: name}
				i := s.intentFor(nil, c.remedy)
				if c.exists {
					i = s.intentFor(s.create("ConfigMap", fmt.Sprintf(oneMap, name)), c.remedy)
				}
				came := false
				tries := 0
				s.member.before = func(r *http.Request) error {
					request := r.Method
					if r.Method == http.MethodDelete {
						if tries++; tries == 1 {
							request = "try DELETE" // a delete says so in its body
						}
					} else if r.URL.Query().Has("dryRun") {
						request = "try " + request
					}
					if request == c.at && !came {
						came = true
						switch {
						case !c.exists:
							s.create("ConfigMap", fmt.Sprintf(oneMap, name))
						case how == "changed":
							s.merge("ConfigMap", name, `{"data":{"z":"9"}}`)
						default:
							s.remove("ConfigMap", name)
							s.create("ConfigMap", fmt.Sprintf(oneMap, name))
						}
					}
					return nil
				}
				a := s.execute(i)
				s.member.before = nil
				if !came {
					t.Fatalf("no request %s was sent", c.at)
				}
				if a.Phase != v1alpha1.PhaseSuperseded {
					t.Errorf("%s %s", a.Phase, a.Message)
				}
				if known := s.recorded(a.Name); (known != nil) != c.recorded || known != nil && known.Phase != v1alpha1.PhaseSuperseded {
					t.Errorf("recorded %+v", known)
				}
				if now := s.get("ConfigMap", name); !reflect.DeepEqual(now["data"].(map[string]any)["a"], "1") {
					t.Errorf("it was written: %v", now["data"])
				}
				for _, w := range s.audited("configmaps", name) {
					if w.manager {
						t.Errorf("written: %+v", w)
					}
				}
			})
		}
	}
}

// TestExecutor_RecordsNoSecretValues: nor do messages of the member show them.
func TestExecutor_RecordsNoSecretValues(t *testing.T) {
	s := newFixture(t)
	object := s.create("Secret", `{"metadata":{"name":"one"},"type":"kubernetes.io/basic-auth","stringData":{"username":"admin","password":"hunter2"}}`)
	a := s.execute(s.intentFor(object, patch(`{"stringData":{"password":"correct-horse"}}`)))
	if a.Phase != v1alpha1.PhaseSucceeded || a.Irreversible == "" || a.InverseVerb != "" {
		t.Fatalf("%s %s, inverse %q %q", a.Phase, a.Message, a.InverseVerb, a.Irreversible)
	}
	object = s.merge("Secret", "one", `{"metadata":{"labels":{"x":"y"}}}`)
	refused := s.execute(s.intentFor(object, patch(`{"type":"Opaque","stringData":{"password":"battery-staple"}}`)))
	if refused.Phase != v1alpha1.PhaseFailed || !strings.Contains(refused.Message, "refused (422") {
		t.Errorf("%s %s", refused.Phase, refused.Message)
	}
	for _, name := range []string{a.Name, refused.Name} {
		text := s.raw(name)
		for _, value := range []string{"hunter2", "correct-horse", "battery-staple", "aHVudGVyMg", "Y29ycmVjdC1ob3JzZQ"} {
			if strings.Contains(text, value) {
				t.Errorf("%s is recorded: %s", value, text)
			}
		}
	}
	// A label is not a value, and can be rolled back.
	object = s.merge("Secret", "one", `{"metadata":{"labels":{"x":"z"}}}`)
	if a := s.execute(s.intentFor(object, patch(`{"metadata":{"labels":{"x":"w"}}}`))); a.Phase != v1alpha1.PhaseSucceeded || a.InverseVerb != "patch" {
		t.Errorf("%s %s, inverse %q", a.Phase, a.Message, a.InverseVerb)
	}
	s.expectWrites("secrets", "one", "create by others", "patch by us", "patch by others", "patch by others", "patch by us")
}

// TestExecutor_CheckWritePreventsWrite: checkWrite is called after the record and before the
// write.
func TestExecutor_CheckWritePreventsWrite(t *testing.T) {
	s := newFixture(t)
	object := s.create("ConfigMap", fmt.Sprintf(oneMap, "one"))
	i := s.intentFor(object, patch(`{"data":{"a":"3"}}`))
	stopped := errors.New("stopped")
	s.checkWrite = func(*Intent) error { return stopped }
	a, err := s.exec.execute(t.Context(), i)
	if !errors.Is(err, stopped) {
		t.Fatal(a, err)
	}
	if known := s.recorded(a.Name); known == nil || known.Phase != v1alpha1.PhaseWriting {
		t.Errorf("recorded %+v", known)
	}
	s.checkWrite = nil
	if again := s.execute(i); again.Phase != v1alpha1.PhaseSucceeded || again.Name != a.Name {
		t.Errorf("%s %s", again.Phase, again.Message)
	}
	s.expectWrites("configmaps", "one", "create by others", "patch by us")
}
