package crash

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// budgetChecks let a policy use its limit up, and then have one object more violate it, again
// and again. What halts it is withdrawn each time, and the policy is changed, which ends the
// halt: the next process has nothing but what was written to go by.
type budgetChecks struct {
	*harness

	created int
	refused int // objects that were not written because of the limit
}

func (b *budgetChecks) step() {
	b.Helper()
	wrong, good := b.wrong(b.member, budgetBinding)
	if good > budgetLimit {
		b.Fatalf("%d objects are written within %v, the limit is %d", good, longWindow, budgetLimit)
	}
	halted := len(b.state(budgetBinding).Halts) > 0
	switch {
	case len(wrong) > 0 && halted:
		b.refused++
		for _, name := range wrong {
			if err := b.member.Client().CoreV1().ConfigMaps(budgetBinding).Delete(b.Context(), name, metav1.DeleteOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		b.wish(func(w *wishes) { w.Budget++ })
	case len(wrong) == 0 && !halted && (!b.ending || b.refused == 0):
		b.violate(b.member, budgetBinding, fmt.Sprintf("n-%d", b.created))
		b.created++
	}
}

func (b *budgetChecks) settled() error {
	if b.refused == 0 {
		return fmt.Errorf("policy %s: its limit is not reached", budgetBinding)
	}
	return b.under(budgetBinding)
}

func (b *budgetChecks) judge() {
	b.Helper()
	written := map[string]bool{}
	for _, q := range b.requests(b.member, budgetBinding) {
		written[q.target] = true
	}
	if len(written) > budgetLimit {
		b.Errorf("%d objects were written within %v, the limit is %d", len(written), longWindow, budgetLimit)
	}
	b.Logf("budget: %d objects violated the policy, %d were written within %v (limit %d), %d refused", b.created, len(written), longWindow, budgetLimit, b.refused)
}
