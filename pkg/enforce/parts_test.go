package enforce

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// TestCombine_OfPartsIsThatOfAll, also where those of some members do not count.
func TestCombine_OfPartsIsThatOfAll(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	compared := 0
	for range 2000 {
		var list []*remediate.Intent
		for n := range 1 + random.IntN(12) {
			i := &remediate.Intent{
				Message: fmt.Sprint("m", random.IntN(3)), Subject: policy.Subject{Ref: aggregate.Ref{Member: fmt.Sprint("m", random.IntN(3)), Name: fmt.Sprint(n)}},
				Remedy: policy.Remedy{Action: "patch", Patch: fmt.Appendf(nil, `{"spec":{"f%d":%d}}`, random.IntN(3), random.IntN(4)/3)}, Version: "new",
			}
			if random.IntN(4) == 0 {
				i.Version, i.Former = "old", true
			}
			list = append(list, i)
		}
		all := Combine(list)
		parts := distinctParts(sorted(list))
		if parts == nil {
			parts = []*remediate.Intent{&all}
		}
		if random.IntN(2) == 0 {
			list, parts = without(list, "m0"), without(parts, "m0")
		}
		if len(list) == 0 || len(parts) == 0 {
			if len(list) != len(parts) {
				t.Fatalf("%d intents have %d parts", len(list), len(parts))
			}
			continue
		}
		compared++
		if want, got := Combine(list), Combine(parts); !reflect.DeepEqual(got, want) {
			t.Fatalf("of %d parts of %d: %+v, want %+v", len(parts), len(list), got, want)
		}
	}
	if compared < 1000 {
		t.Errorf("only %d were compared", compared)
	}
}

func sorted(list []*remediate.Intent) []*remediate.Intent {
	return slices.SortedStableFunc(slices.Values(list), compareIntents)
}

func without(list []*remediate.Intent, member string) []*remediate.Intent {
	return slices.DeleteFunc(slices.Clone(list), func(i *remediate.Intent) bool { return i.Subject.Ref.Member == member })
}
