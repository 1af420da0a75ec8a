package admission_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/admission"
)

const (
	approvalsName = "approvals.federator.dev"
	authorsName   = "fleetpolicies.federator.dev"
	recordsName   = "records.federator.dev"
	rollbacksName = "rollbacks.federator.dev"
)

type (
	policySpec  = admissionregistrationv1.ValidatingAdmissionPolicySpec
	bindingSpec = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec
)

// prover returns a Prover that is federator.
func prover(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) *admission.Prover {
	t.Helper()
	cfg := as(t, federator)
	if wrap != nil {
		cfg.Wrap(wrap)
	}
	client, _ := clientFor(t, cfg)
	return admission.NewProver(client)
}

// proven waits until what is installed is in force.
func proven(t *testing.T, p *admission.Prover) admission.Proofs {
	t.Helper()
	var out admission.Proofs
	until(t, func() (err error) {
		if out, err = p.Prove(t.Context()); err == nil && !(out.Approvals.Proven() && out.Authors.Proven() && out.Rollbacks.Proven()) {
			err = fmt.Errorf("approvals: %q, authors: %q, rollbacks: %q", out.Approvals.Reason, out.Authors.Reason, out.Rollbacks.Reason)
		}
		return err
	})
	return out
}

// TestProver_ProvesWhatTheChartInstalls, and nothing where any of it is missing, altered,
// or not in force.
func TestProver_ProvesWhatTheChartInstalls(t *testing.T) {
	p := prover(t, nil)
	got, err := prover(t, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet {
				t.Errorf("without policies, it asks every few seconds: %s %s", r.Method, r.URL)
			}
			return next.RoundTrip(r)
		})
	}).Prove(t.Context())
	must(t, err)
	if !strings.HasPrefix(got.Approvals.Reason, "ValidatingAdmissionPolicy approvals.federator.dev does not exist on the hub") || got.Authors.Proven() {
		t.Errorf("without policies: %+v", got)
	}
	install(t, approvalsName, authorsName, rollbacksName)
	first := proven(t, p)
	if len(first.Approvals.Objects) != 2 || len(first.Authors.Objects) != 2 || first.Approvals.Objects[0].UID == "" || first.Approvals.Objects[1].Generation == 0 {
		t.Errorf("%+v", first)
	}
	if again := proven(t, p); !again.Approvals.Same(first.Approvals) || !again.Authors.Same(first.Authors) {
		t.Errorf("%+v is not the same as %+v", again, first)
	}
	for what, change := range map[string]func(*policySpec, *bindingSpec){
		"an expression that is true": func(p *policySpec, _ *bindingSpec) { p.Validations[0].Expression = "true" },
		"a false name in front": func(p *policySpec, _ *bindingSpec) {
			p.Validations[0].Expression += " && object.spec.by != 'system:federator:false-name'"
		},
		"one expression less": func(p *policySpec, _ *bindingSpec) { p.Validations = p.Validations[:2] },
		"another order": func(p *policySpec, _ *bindingSpec) {
			p.Validations[0], p.Validations[1] = p.Validations[1], p.Validations[0]
		},
		"failures ignored": func(p *policySpec, _ *bindingSpec) { *p.FailurePolicy = admissionregistrationv1.Ignore },
		"an exempted user": func(p *policySpec, _ *bindingSpec) {
			p.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "a", Expression: "request.userInfo.username != 'joe'"}}
		},
		"an exempted label":     func(p *policySpec, _ *bindingSpec) { p.MatchConstraints.ObjectSelector = selector() },
		"an exempted namespace": func(p *policySpec, _ *bindingSpec) { p.MatchConstraints.NamespaceSelector = selector() },
		"an exempted name": func(p *policySpec, _ *bindingSpec) {
			p.MatchConstraints.ExcludeResourceRules = []admissionregistrationv1.NamedRuleWithOperations{{ResourceNames: []string{"a"}, RuleWithOperations: p.MatchConstraints.ResourceRules[0].RuleWithOperations}}
		},
		"another operation": func(p *policySpec, _ *bindingSpec) {
			p.MatchConstraints.ResourceRules[0].Operations = []admissionregistrationv1.OperationType{"UPDATE"}
		},
		"an exact match": func(p *policySpec, _ *bindingSpec) { *p.MatchConstraints.MatchPolicy = admissionregistrationv1.Exact },
		"audit only": func(_ *policySpec, b *bindingSpec) {
			b.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
		},
		"a binding of another policy": func(_ *policySpec, b *bindingSpec) { b.PolicyName = authorsName },
		"a binding for another namespace": func(_ *policySpec, b *bindingSpec) {
			b.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: selector()}
		},
		"a binding for objects of a label": func(_ *policySpec, b *bindingSpec) {
			b.MatchResources = &admissionregistrationv1.MatchResources{ObjectSelector: selector()}
		},
	} {
		policy, binding := shipped(t, approvalsName)
		change(&policy.Spec, &binding.Spec)
		put(t, approvalsName, policy, nil) // what a binding is of is immutable
		put(t, approvalsName, policy, binding)
		got, err := p.Prove(t.Context())
		must(t, err)
		if !strings.Contains(got.Approvals.Reason, "approvals.federator.dev on the hub is not the one that this version of federator comes with") || got.Authors.Proven() || got.Rollbacks.Proven() {
			t.Errorf("%s: %+v", what, got)
		}
	}
	policy, binding := shipped(t, approvalsName)
	put(t, approvalsName, policy, nil)
	if got, err = p.Prove(t.Context()); err != nil || !strings.HasPrefix(got.Approvals.Reason, "ValidatingAdmissionPolicyBinding approvals.federator.dev does not exist on the hub") {
		t.Errorf("bound to nothing: %+v, %v", got, err)
	}
	put(t, approvalsName, policy, binding)
	restored := proven(t, p)
	if restored.Approvals.Same(first.Approvals) || !restored.Authors.Same(first.Authors) {
		t.Errorf("what was changed and restored in between is the same:\n%+v\n%+v", restored, first)
	}
	author, authors := shipped(t, authorsName)
	author.Spec.Validations[0].Expression = "true"
	put(t, authorsName, author, authors)
	if got, err = p.Prove(t.Context()); err != nil || !got.Approvals.Same(restored.Approvals) || got.Authors.Proven() {
		t.Errorf("authors are not checked: %+v, %v", got, err)
	}
	rollbacks, bound := shipped(t, rollbacksName)
	rollbacks.Spec.Validations = rollbacks.Spec.Validations[:2]
	put(t, rollbacksName, rollbacks, bound)
	if got, err = p.Prove(t.Context()); err != nil || !got.Approvals.Same(restored.Approvals) || got.Rollbacks.Proven() {
		t.Errorf("anybody may roll back: %+v, %v", got, err)
	}
}

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
}

const created = `{"kind":"Approval","apiVersion":"federator.dev/v1alpha1","metadata":{"name":"a"}}`

// answering returns what answers requests to create Approvals, and passes others on.
func answering(answer roundTripper) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/approvals") {
				return answer(r)
			}
			return next.RoundTrip(r)
		})
	}
}

func response(r *http.Request, code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

// TestProver_OtherAnswersProveNothing: policies that are right and not in force, and
// denials that have nothing to do with names.
func TestProver_OtherAnswersProveNothing(t *testing.T) {
	install(t, approvalsName, authorsName, rollbacksName)
	proven(t, prover(t, nil))
	posts := func(answer roundTripper) *admission.Prover { return prover(t, answering(answer)) }
	say := func(code int, body string) roundTripper {
		return func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Get("dryRun") != "All" {
				t.Errorf("%s is no dry run", r.URL)
			}
			return response(r, code, body), nil
		}
	}
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":%q}`
	for what, c := range map[string]struct {
		code       int
		body, want string
	}{
		"an API server without the plugin": {201, created, "the hub admits an Approval under a false name"},
		"a denial by another expression": {
			403, fmt.Sprintf(status, "approvals \"a\" is forbidden: ValidatingAdmissionPolicy 'approvals.federator.dev' with binding 'approvals.federator.dev' denied request: spec.groups must be groups of the user who creates the Approval"),
			"denied for another reason",
		},
		"a denial by another binding": {
			403, fmt.Sprintf(status, "approvals \"a\" is forbidden: ValidatingAdmissionPolicy 'approvals.federator.dev' with binding 'b' denied request: spec.by must be the name of the user who creates the Approval"),
			"denied for another reason",
		},
		"no such kind": {404, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found"}`, "denied for another reason"},
	} {
		got, err := posts(say(c.code, c.body)).Prove(t.Context())
		if err != nil || !strings.Contains(got.Approvals.Reason, c.want) || got.Authors.Proven() {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	for what, answer := range map[string]roundTripper{
		"no answer":    func(*http.Request) (*http.Response, error) { return nil, errors.New("cut") },
		"not ready":    say(503, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503}`),
		"a bad answer": say(500, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500}`),
	} {
		if got, err := posts(answer).Prove(t.Context()); err == nil || got.Approvals.Objects != nil {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}

	// RBAC denies, before admission is asked.
	roles := hub(t).Client().RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), "federator", metav1.GetOptions{})
	must(t, err)
	less := role.DeepCopy()
	less.Rules = []rbacv1.PolicyRule{role.Rules[0]}
	less, err = roles.Update(t.Context(), less, metav1.UpdateOptions{})
	must(t, err)
	p := prover(t, nil)
	until(t, func() error {
		got, err := p.Prove(t.Context())
		if err == nil && !strings.Contains(got.Approvals.Reason, `denied for another reason: approvals.federator.dev is forbidden: User "`+federator+`" cannot create`) {
			err = fmt.Errorf("%+v", got)
		}
		return err
	})
	less.Rules = nil
	less, err = roles.Update(t.Context(), less, metav1.UpdateOptions{})
	must(t, err)
	until(t, func() error {
		got, err := p.Prove(t.Context())
		if err == nil && !strings.HasPrefix(got.Approvals.Reason, "ValidatingAdmissionPolicy approvals.federator.dev cannot be read: ") {
			err = fmt.Errorf("%+v", got)
		}
		return err
	})
	less.Rules = role.Rules
	_, err = roles.Update(t.Context(), less, metav1.UpdateOptions{})
	must(t, err)
	proven(t, p)

	cfg := rest.AnonymousClientConfig(hub(t).RESTConfig())
	client, _ := clientFor(t, cfg)
	if got, err := admission.NewProver(client).Prove(t.Context()); err == nil {
		t.Errorf("nobody: %+v", got)
	}
}
