// Package history keeps the last transitions of a policy as its PolicyState has them, so that
// what begins and ends while nobody looks can still be told.
package history

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
)

// Limits of the CRD.
const (
	maxMessage = 512
	maxBy      = 253
)

// Log is the transitions of one policy, the oldest first. The zero value is empty.
type Log []v1alpha1.PolicyTransition

// With returns a log that has one more transition, without the oldest where it is full. The
// log itself does not change: it may be on its way to the hub.
func (l Log) With(t v1alpha1.PolicyTransition, at time.Time) Log {
	t.At = metav1.NewMicroTime(at)
	t.Message, t.By = clip.Text(t.Message, maxMessage), clip.Text(t.By, maxBy)
	from := max(0, len(l)+1-v1alpha1.MaxTransitions)
	out := make(Log, 0, len(l)-from+1)
	return append(append(out, l[from:]...), t)
}
