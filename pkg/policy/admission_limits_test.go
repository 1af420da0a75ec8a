package policy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy"
)

// Parameters are what an API server shows at the version of paramKind: fields may have other names at another.
func TestAdmissionPolicy_TakesNoParametersOfAnotherVersion(t *testing.T) {
	t.Parallel()
	w := admissionWorld(t)
	set := loadFiles(t, policy.File{Path: "limits.yaml", Data: []byte(strings.Replace(admissionPolicy, "shop.example/v1,", "shop.example/v2,", 1))})
	mustDo(t, w, limit("fleet/a", 5), putIn("fleet/a", "Deployment.apps", "shop", "web", replicas(7)))
	e, _ := gatekeeperEngine(t, w, set)
	wantMessages(t, e.State(), admissionBinding, "web failed: Limit.shop.example is held at shop.example/v1, and paramKind is of shop.example/v2: it is not evaluated with parameters of another version")
}

// The limit is of an evaluation with all parameters, however many there are.
func TestAdmissionPolicy_EndsWithItsBudget(t *testing.T) {
	t.Parallel()
	w := admissionWorld(t)
	set := loadFiles(t, policy.File{Path: "limits.yaml", Data: []byte(strings.Replace(admissionPolicy, "name: replicas,", "selector: {},", 1))})
	for i := range 50 {
		mustDo(t, w, op{Do: "put", Member: "fleet/a", Kind: "Limit.shop.example", NS: "shop", Name: fmt.Sprint("l", i), Object: map[string]any{"max": 9}})
	}
	mustDo(t, w, putIn("fleet/a", "Deployment.apps", "shop", "web", replicas(7)))
	bindings, _ := policy.DefaultBindings(set, nil)
	e, _ := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindings, Limits: policy.Limits{Evaluation: ms}, CPU: steps(), Parallelism: 1})
	wantMessages(t, e.State(), admissionBinding, "web failed: it exceeds its time budget")
}

// A name that begins with a dot is that of an input, too.
func TestAdmissionPolicy_KnowsRootedNames(t *testing.T) {
	t.Parallel()
	w := admissionWorld(t)
	text := strings.Replace(admissionPolicy, "object.metadata.name != 'odd'", "has(.namespaceObject.metadata.labels.zone)", 1)
	set := loadFiles(t, policy.File{Path: "limits.yaml", Data: []byte(text)})
	mustDo(t, w, limit("fleet/a", 9), putIn("fleet/a", "Deployment.apps", "shop", "web", replicas(7)))
	e, cursor := gatekeeperEngine(t, w, set)
	wantMessages(t, e.State(), admissionBinding, "fleet/a|shop|web|odd")
	mustDo(t, w, op{Do: "put", Member: "fleet/a", Kind: "Namespace", Name: "shop", Object: withLabels(map[string]any{"env": "production", "zone": "1"}, nil)})
	apply(t, e, cursor)
	wantMessages(t, e.State(), admissionBinding)
}

// Names become those of packages, and are written into modules.
func TestLoad_RefusesNamesThatAnAPIServerRefuses(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"A", "'a # c'", "'a[0]'", `"a\nviolation[x] { x := 1 }"`, "a/b", "_", "a..b"} {
		for line, old := range map[int]string{4: "name: replica-limits.shop", 20: "name: limits}", 22: "policyName: replica-limits.shop"} {
			key, _, _ := strings.Cut(old, ": ")
			end := ""
			if strings.HasSuffix(old, "}") {
				end = "}"
			}
			text := strings.Replace(admissionPolicy, old, key+": "+name+end, 1)
			_, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "limits.yaml", Data: []byte(text)}}}}, policy.LoadOptions{})
			var list policy.LoadErrors
			if !errors.As(err, &list) || !slices.ContainsFunc(list, func(f policy.Finding) bool {
				return f.Line == line && strings.Contains(f.Message, "is not one of Kubernetes")
			}) {
				t.Errorf("%s as %s: %v", name, key, err)
			}
		}
	}
}
