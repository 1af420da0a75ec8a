package policy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/explain"
)

// admissionPolicy is about replicas of Deployments, of which a ConfigMap of each member says how many there may be.
const admissionPolicy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: replica-limits.shop
  annotations: {description: Not too many., federator.dev/severity: high}
spec:
  paramKind: {apiVersion: shop.example/v1, kind: Limit}
  matchConstraints:
    namespaceSelector: {matchLabels: {env: production}}
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE, UPDATE]}
  validations:
  - expression: object.spec.replicas <= params.max
    messageExpression: "'at most ' + string(params.max)"
  - expression: object.metadata.name != 'odd'
    message: odd
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: limits}
spec:
  policyName: replica-limits.shop
  validationActions: [Deny, Audit]
  paramRef: {name: replicas, namespace: shop, parameterNotFoundAction: Allow}
`

const admissionBinding = "ValidatingAdmissionPolicyBinding/limits"

// admissionWorld has scopes of Limits beside those of gatekeeperWorld.
func admissionWorld(t *testing.T) *world {
	t.Helper()
	w := gatekeeperWorld(t)
	for _, m := range []string{"fleet/a", "fleet/b"} {
		mustDo(
			t, w, op{Do: "reopen", Member: m, Kind: "Limit.shop.example", Version: "shop.example/v1", State: aggregate.Synced},
			op{Do: "put", Member: m, Kind: "Namespace", Name: "shop", Object: withLabels(map[string]any{"env": "production"}, nil)},
		)
	}
	return w
}

func limit(member string, n any) op {
	return op{Do: "put", Member: member, Kind: "Limit.shop.example", NS: "shop", Name: "replicas", Object: map[string]any{"max": n}}
}

func TestAdmissionPolicy_FollowsItsParametersAndNamespaces(t *testing.T) {
	t.Parallel()
	w := admissionWorld(t)
	set := loadFiles(t, policy.File{Path: "limits.yaml", Data: []byte(admissionPolicy)})
	p := set.Package("admission.replica_limits_shop")
	if p == nil || p.Severity != "high" || p.Title != "replica-limits.shop" || p.Description != "Not too many." || p.AnyKind || len(p.Kinds) != 1 || p.Kinds[0].Kind != "Deployment.apps" {
		t.Fatalf("the package is %+v", p)
	}
	kinds, _ := set.Kinds()
	for _, kind := range []aggregate.Kind{"Deployment.apps", "Limit.shop.example", "Namespace"} {
		if !slices.Contains(kinds, policy.KindRef{Kind: kind}) {
			t.Errorf("%s is not read: %v", kind, kinds)
		}
	}
	mustDo(
		t, w, limit("fleet/a", 5), limit("fleet/b", 2),
		putIn("fleet/a", "Deployment.apps", "shop", "web", replicas(7)),
		putIn("fleet/a", "Deployment.apps", "shop", "api", replicas(3)),
		putIn("fleet/b", "Deployment.apps", "shop", "api", replicas(3)),
	)
	e, cursor := gatekeeperEngine(t, w, set)
	after := func(ops ...op) *policy.State {
		mustDo(t, w, ops...)
		apply(t, e, cursor)
		return e.State()
	}
	wantMessages(t, e.State(), admissionBinding, "fleet/a|shop|web|at most 5", "fleet/b|shop|api|at most 2")
	before := e.Stats().Evaluations
	// Parameters of a member are for its own objects.
	s := after(limit("fleet/b", 3))
	wantMessages(t, s, admissionBinding, "fleet/a|shop|web|at most 5")
	if n := e.Stats().Evaluations - before; n != 1 {
		t.Errorf("a parameter of fleet/b makes %d evaluations", n)
	}
	wantMessages(t, after(limit("fleet/a", 2)), admissionBinding, "fleet/a|shop|api|at most 2", "fleet/a|shop|web|at most 2")
	// What an expression cannot say is an error.
	wantMessages(t, after(limit("fleet/a", "many")), admissionBinding,
		"api failed: expression 'object.spec.replicas <= params.max' resulted in error: no such overload",
		"web failed: expression 'object.spec.replicas <= params.max' resulted in error: no such overload")
	// Without parameters nothing is evaluated.
	wantMessages(t, after(op{Do: "delete", Member: "fleet/a", Kind: "Limit.shop.example", NS: "shop", Name: "replicas"}), admissionBinding)
	wantMessages(t, after(limit("fleet/a", 2)), admissionBinding, "fleet/a|shop|api|at most 2", "fleet/a|shop|web|at most 2")
	// The Namespace's labels select.
	test := op{Do: "put", Member: "fleet/a", Kind: "Namespace", Name: "shop", Object: withLabels(map[string]any{"env": "test"}, nil)}
	wantMessages(t, after(test), admissionBinding)
	// A verdict that read parameters which are not known to be all is Unknown.
	if c := after(op{Do: "status", Member: "fleet/b", Kind: "Limit.shop.example", State: aggregate.Syncing}).Total(admissionBinding); c.Unknown == 0 {
		t.Errorf("nothing is Unknown: %+v", c)
	}
}

func TestAdmissionPolicy_IsNotEvaluatedOnAnotherVersion(t *testing.T) {
	t.Parallel()
	w := admissionWorld(t)
	set := loadFiles(t, policy.File{Path: "limits.yaml", Data: []byte(strings.Replace(admissionPolicy, "apiVersions: [v1]", "apiVersions: [v1beta2]", 1))})
	mustDo(t, w, limit("fleet/a", 5), putIn("fleet/a", "Deployment.apps", "shop", "web", replicas(7)))
	e, _ := gatekeeperEngine(t, w, set)
	wantMessages(t, e.State(), admissionBinding, "web failed: Deployment.apps is held at apps/v1, and the policy is about version v1beta2: it is not evaluated on an object of another version")
}

// What members read a custom kind as is not known in this world.
func TestAdmissionPolicy_GuessesNoResource(t *testing.T) {
	t.Parallel()
	w := admissionWorld(t)
	mustDo(t, w, limit("fleet/a", 5))
	for _, c := range []struct {
		rule, expression string
		want             []string
	}{
		{"apiGroups: [shop.example], apiVersions: [v1], resources: [limits]", "false", []string{
			"replicas failed: replicas: it is not known which resource Limit.shop.example is in member \"fleet/a\", by which the policy selects objects",
		}},
		{"apiGroups: [shop.example], apiVersions: [v1], resources: ['*']", "false", []string{"fleet/a|shop|replicas|failed expression: false"}},
		{"apiGroups: [shop.example], apiVersions: [v1], resources: ['*']", "request.resource.resource == 'x'", []string{
			"replicas failed: the policy reads request.resource, and it is not known which resource Limit.shop.example is in member \"fleet/a\"",
		}},
		{"apiGroups: [other.example], apiVersions: [v1], resources: [limits]", "false", nil},
	} {
		text := fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: any}
spec:
  matchConstraints: {resourceRules: [{%s, operations: [CREATE]}]}
  validations: [{expression: "%s"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: limits}
spec: {policyName: any, validationActions: [Deny]}
`, c.rule, c.expression)
		e, _ := gatekeeperEngine(t, w, loadFiles(t, policy.File{Path: "any.yaml", Data: []byte(text)}))
		wantMessages(t, e.State(), admissionBinding, c.want...)
	}
}

func TestAdmissionPolicy_TakesNoRedactedParameters(t *testing.T) {
	t.Parallel()
	w := admissionWorld(t)
	mustDo(t, w, op{Do: "reopen", Member: "fleet/a", Kind: "ConfigMap", Version: "v1", State: aggregate.Synced})
	text := strings.NewReplacer("apiVersion: shop.example/v1, kind: Limit", "apiVersion: v1, kind: ConfigMap", "params.max", "int(params.data.max)").Replace(admissionPolicy)
	set := loadFiles(t, policy.File{Path: "limits.yaml", Data: []byte(text)})
	put := func(annotations map[string]any, value string) op {
		return op{Do: "put", Member: "fleet/a", Kind: "ConfigMap", NS: "shop", Name: "replicas", Object: map[string]any{
			"metadata": map[string]any{"annotations": annotations}, "data": map[string]any{"max": value},
		}}
	}
	mustDo(t, w, put(map[string]any{"federator.dev/redacted": "true"}, ""), putIn("fleet/a", "Deployment.apps", "shop", "web", replicas(7)))
	e, cursor := gatekeeperEngine(t, w, set)
	wantMessages(t, e.State(), admissionBinding, "web failed: the values of fleet/a ConfigMap shop/replicas are redacted, and may be parameters only where keepSecretValues is configured")
	mustDo(t, w, put(nil, "4"))
	apply(t, e, cursor)
	wantMessages(t, e.State(), admissionBinding, "fleet/a|shop|web|at most 4")
}

func TestAdmissionPolicy_IsExplainedAtItsLine(t *testing.T) {
	t.Parallel()
	w := admissionWorld(t)
	set := loadFiles(t, policy.File{Path: "limits.yaml", Data: []byte(admissionPolicy)})
	mustDo(t, w, limit("fleet/a", 5), putIn("fleet/a", "Deployment.apps", "shop", "web", replicas(7)))
	e, _ := gatekeeperEngine(t, w, set)
	x, err := explain.Explain(t.Context(), policy.EngineOptions{Set: set}, e.State(), admissionBinding,
		policy.Subject{Ref: aggregate.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "web"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Lines) != 2 || x.Lines[0].Row != 13 || x.Lines[0].File != "limits.yaml" || x.Lines[0].Held != 0 || x.Lines[1].Row != 15 || x.Lines[1].Held != 1 {
		t.Errorf("lines %+v", x.Lines)
	}
	i := slices.IndexFunc(x.Reads, func(r explain.Read) bool { return r.Path == "params" })
	if i < 0 || len(x.Reads[i].Objects) != 1 || x.Reads[i].Objects[0].Ref.Name != "replicas" {
		t.Errorf("reads %+v", x.Reads)
	}
	if v := x.Verdict.Violations; len(v) != 1 || string(v[0].Details) != `{"params":"shop/replicas","validation":"spec.validations[0]"}` {
		t.Errorf("violations %+v", v)
	}
	if x.Reevaluated != nil {
		t.Errorf("evaluated again it is %+v", x.Reevaluated)
	}
}

func TestLoad_SaysWhatIsWrongWithAdmissionPolicies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, old, with string
		line            int
		want            string
	}{
		{"unknown field", "messageExpression", "messageExpresion", 14, `unknown field "spec.validations[0].messageExpresion"`},
		{"wrong type", "resources: [deployments]", "resources: deployments", 11, "is of type string"},
		{"unknown policy", "policyName: replica-limits.shop", "policyName: other", 22, "there is no ValidatingAdmissionPolicy other"},
		{"unknown action", "[Deny, Audit]", "[Refuse]", 23, "Refuse"},
		{"both actions", "[Deny, Audit]", "[Deny, Warn]", 23, "both"},
		{"no action for parameters", ", parameterNotFoundAction: Allow", "", 24, "Allow or Deny"},
		{"name and selector", "name: replicas,", "name: replicas, selector: {},", 24, "either"},
		{"expression", "object.spec.replicas <= params.max", "object.spec.replicas <= ", 13, "Syntax error"},
		{"request", "object.spec.replicas <= params.max", "request.userInfo.username == 'x'", 13, "only a request has"},
		{"only updates", "[CREATE, UPDATE]", "[UPDATE]", 11, "no rule has operation CREATE"},
		{"members", "metadata: {name: limits}", "metadata: {name: limits, annotations: {federator.dev/members: ' , '}}", 20, "names no member"},
		{"version", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\n", "apiVersion: admissionregistration.k8s.io/v2\nkind: ValidatingAdmissionPolicy\n", 1, "versions v1, v1beta1 and v1alpha1"},
	} {
		text := strings.Replace(admissionPolicy, c.old, c.with, 1)
		if text == admissionPolicy {
			t.Fatalf("%s: nothing is replaced", c.name)
		}
		_, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "limits.yaml", Data: []byte(text)}}}}, policy.LoadOptions{})
		var list policy.LoadErrors
		if !errors.As(err, &list) || !slices.ContainsFunc(list, func(f policy.Finding) bool { return f.Line == c.line && strings.Contains(f.Message, c.want) }) {
			t.Errorf("%s: got %v, want %q at line %d", c.name, err, c.want, c.line)
		}
	}
	other := policy.File{Path: "other.yaml", Data: []byte(strings.Replace(admissionPolicy, "'odd'", "'even'", 1))}
	_, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "limits.yaml", Data: []byte(admissionPolicy)}, other}}}, policy.LoadOptions{})
	if err == nil || !strings.Contains(err.Error(), "is also in limits.yaml:1, with other content") {
		t.Errorf("two that differ: %v", err)
	}
	alone, _, _ := strings.Cut(admissionPolicy, "---\n")
	set := loadFiles(t, policy.File{Path: "limits.yaml", Data: []byte(alone)})
	if list := policy.Lint(set); len(list) != 1 || list[0].Code != "no-binding" || list[0].Line != 4 {
		t.Errorf("lint of a policy without a binding: %v", list)
	}
	audit := `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: audit}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [shop.example], apiVersions: [v1], resources: [limits], operations: [CREATE]}
  auditAnnotations: [{key: a, valueExpression: "'b'"}]
`
	var codes []string
	for _, f := range policy.Lint(loadFiles(t, policy.File{Path: "audit.yaml", Data: []byte(audit)})) {
		codes = append(codes, fmt.Sprint(f.Code, " ", f.Line))
	}
	if got := strings.Join(codes, ", "); got != "no-binding 3, no-validations 5, unknown-resource 7" {
		t.Errorf("lint of a policy that only annotates: %s", got)
	}
	if bindings, _ := policy.DefaultBindings(set, nil); len(bindings) != 0 {
		t.Errorf("a policy without a binding is evaluated: %v", bindings)
	}
}
