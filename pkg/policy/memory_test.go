package policy_test

import (
	"fmt"
	"testing"
	"time"

	"federator.dev/federator/pkg/policy"
)

const fat = `# METADATA
# title: Large details
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.fat

text := concat("", ["0123456789" | some _ in numbers.range(1, 2000)])

violation contains {"msg": "fat", "details": {"name": input.ref.name, "text": text}} if input.object.spec
`

const misses = `# METADATA
# title: Looks for what is not there
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.misses

violation contains {"msg": "found"} if {
	some i in numbers.range(1, 500)
	data.fleet.objects["Namespace"][input.ref.member][""][sprintf("%s-%d", [input.ref.name, i])]
}
`

// TestEngine_BoundsTheTotalMemoryOfABinding has many objects of one member whose verdicts are
// each within their bounds, and take more than the binding may hold in sum: those beyond
// are Errors. Another member's are not; and there is room again when some are gone.
func TestEngine_BoundsTheTotalMemoryOfABinding(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	for name, text := range map[string]string{"test.fat": fat, "test.misses": misses} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, err := deployments(t, 0)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 100 {
				mustDo(t, w, deployment("fleet/b", fmt.Sprint("d", i), map[string]any{"replicas": 1}))
			}
			set := load(t, text)
			e, cursor := engineOn(t, w, policy.EngineOptions{
				Set: set, Bindings: bindingsOf(set), Limits: policy.Limits{Evaluation: time.Hour, Binding: limit},
			})
			total := e.State().Total(name)
			edges := e.Stats().Edges
			if total.Errors < 20 || total.Known < 20 || total.Violations*20_000+edges*24 > limit {
				t.Errorf("%+v, %d edges", total, edges)
			}
			mustDo(t, w, deployment("fleet/a", "one", map[string]any{"replicas": 1}))
			apply(t, e, cursor)
			for member, c := range e.State().Counts(name) {
				if member == "fleet/a" && (c.Known != 1 || c.Errors > 0) {
					t.Errorf("the other member: %+v", c)
				}
			}
			for i := range 90 {
				mustDo(t, w, op{Do: "delete", Member: "fleet/b", Kind: "Deployment.apps", NS: "shop", Name: fmt.Sprint("d", i)})
			}
			apply(t, e, cursor)
			mustDo(t, w, deployment("fleet/a", "one", map[string]any{"replicas": 2}))
			apply(t, e, cursor)
			if got := e.State().Total(name); got.Errors > 0 || got.Known != 11 {
				t.Errorf("when there is room again: %+v", got)
			}
		})
	}
}
