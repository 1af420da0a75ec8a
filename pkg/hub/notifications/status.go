package notifications

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/notify/sinks"
)

// written is when a status was written, and over which version: the informer may not show it yet.
type written struct {
	at   time.Time
	over string
}

const maxMessage = 1024 // as in the CRD

// dueStatus is a status that is to be written.
type dueStatus struct {
	update *v1alpha1.Notification // nil: none is
	before written
	err    error
}

// status returns how far a Notification has come, if it is due that this is written.
func (c *Controller) status(n *v1alpha1.Notification, r *runner, why problem) dueStatus {
	next := n.Status.DeepCopy()
	next.ObservedGeneration = n.Generation
	next.Sink = sinkOf(n)
	own := c.process(n, r)
	c.metrics.waiting.WithLabelValues(n.Name).Set(float64(own.Waiting))
	next.Processes = c.processes(next.Processes, own)
	next.ReportedUntil = nil
	for i := range next.Processes {
		if at := next.Processes[i].ReportedUntil; at != nil && (next.ReportedUntil == nil || at.Before(next.ReportedUntil)) {
			next.ReportedUntil = at
		}
	}
	meta.SetStatusCondition(&next.Conditions, ready(n, next.Processes, why))
	last := c.written[string(n.UID)]
	if equality.Semantic.DeepEqual(next, &n.Status) || last.over == n.ResourceVersion || !last.due(!sameState(next, &n.Status), time.Now()) {
		return dueStatus{}
	}
	c.written[string(n.UID)] = written{time.Now(), n.ResourceVersion}
	update := n.DeepCopy()
	update.ManagedFields, update.Status = nil, *next
	return dueStatus{update: update, before: last}
}

// due reports whether it is time to write another one.
func (w *written) due(urgent bool, now time.Time) bool {
	every := statusEvery
	if urgent {
		every = urgentEvery
	}
	return now.Sub(w.at) >= every
}

// put writes a status.
func (c *Controller) put(ctx context.Context, update *v1alpha1.Notification) error {
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	return c.client.Put().Resource(v1alpha1.Notifications).Name(update.Name).SubResource("status").Param("fieldManager", "federator").Body(update).Do(ctx).Error()
}

// wrote notes what has become of a status.
func (c *Controller) wrote(s *dueStatus) {
	switch {
	case s.err == nil:
	case apierrors.IsConflict(s.err), apierrors.IsNotFound(s.err):
		// It is read again, and written over that.
	default:
		c.written[string(s.update.UID)] = written{at: s.before.at}
		c.opts.Logger.Error("the status of a Notification could not be written", "notification", s.update.Name, "error", s.err)
	}
}

// sameState reports whether two statuses differ in numbers and times alone.
func sameState(a, b *v1alpha1.NotificationStatus) bool {
	if a.ObservedGeneration != b.ObservedGeneration || a.Sink != b.Sink || len(a.Conditions) != len(b.Conditions) || len(a.Processes) != len(b.Processes) {
		return false
	}
	for i := range a.Conditions {
		x, y := &a.Conditions[i], &b.Conditions[i]
		if x.Type != y.Type || x.Status != y.Status || x.Reason != y.Reason {
			return false
		}
	}
	for i := range a.Processes {
		if a.Processes[i].Name != b.Processes[i].Name || a.Processes[i].Log != b.Processes[i].Log {
			return false
		}
	}
	return true
}

// process is the entry of this process. What it had reported before it failed to begin stays: the next goes on from there.
func (c *Controller) process(n *v1alpha1.Notification, r *runner) v1alpha1.NotificationProcess {
	p := v1alpha1.NotificationProcess{Name: c.opts.Name}
	if r.work == nil {
		return p
	}
	s := r.work.status()
	p.Log, p.Position, p.Waiting, p.Failures = s.Log, int64(s.Position), int64(s.Waiting), int32(s.Failures)
	if !s.Until.IsZero() {
		p.ReportedUntil = &metav1.Time{Time: s.Until.Truncate(time.Second)}
	}
	if !s.LastSent.IsZero() {
		p.LastSent = &metav1.Time{Time: s.LastSent.Truncate(time.Second)}
	}
	switch {
	case r.crashed != nil:
		p.Failures, p.Message = p.Failures+1, clip.Text(r.crashed.Error(), maxMessage)
	case s.Err != nil:
		p.Message = clip.Text(textOf(s.Err, n.Spec.IncludeText), maxMessage)
	}
	return p
}

// textOf returns the text of an error of a sink. What a receiver has answered may repeat what it was sent: of text of objects, who reads the
// Notification may not see it.
func textOf(err error, includesText bool) string {
	text := err.Error()
	if !includesText {
		return text
	}
	for _, refused := range refusals(err) {
		text = strings.ReplaceAll(text, refused.Error(), (&sinks.RefusedError{Status: refused.Status}).Error())
	}
	return text
}

// refusals returns the answers of receivers that an error is made of.
func refusals(err error) (all []*sinks.RefusedError) {
	switch x := err.(type) { //nolint:errorlint // All of the errors that it wraps are looked at.
	case *sinks.RefusedError:
		return append(all, x)
	case interface{ Unwrap() error }:
		return refusals(x.Unwrap())
	case interface{ Unwrap() []error }:
		for _, e := range x.Unwrap() {
			all = append(all, refusals(e)...)
		}
	}
	return all
}

// processes puts the entry of this process among those of the others that there are.
func (c *Controller) processes(list []v1alpha1.NotificationProcess, own v1alpha1.NotificationProcess) []v1alpha1.NotificationProcess {
	var others []string
	known := true
	if c.opts.Others != nil {
		others, known = c.opts.Others()
	}
	list = slices.DeleteFunc(list, func(p v1alpha1.NotificationProcess) bool {
		return p.Name != own.Name && known && !slices.Contains(others, p.Name)
	})
	i := slices.IndexFunc(list, func(p v1alpha1.NotificationProcess) bool { return p.Name == own.Name })
	switch {
	case i < 0:
		list = append(list, own)
	case own.ReportedUntil != nil:
		list[i] = own
	default: // it has not begun
		list[i].Failures, list[i].Message = own.Failures, own.Message
	}
	slices.SortFunc(list, func(a, b v1alpha1.NotificationProcess) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// ready is the condition of a Notification.
func ready(n *v1alpha1.Notification, processes []v1alpha1.NotificationProcess, why problem) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionTrue, Reason: v1alpha1.NotificationSending, Message: "what is selected is sent", ObservedGeneration: n.Generation}
	if why.reason != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, why.reason, clip.Text(why.message, maxMessage)
		return c
	}
	for i := range processes {
		if p := &processes[i]; p.Failures > 0 {
			c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.NotificationFailing
			c.Message = clip.Text(fmt.Sprintf("process %s: %s", p.Name, p.Message), maxMessage)
			return c
		}
	}
	return c
}

func sinkOf(n *v1alpha1.Notification) string {
	switch {
	case n.Spec.Webhook != nil:
		return v1alpha1.SinkWebhook
	case n.Spec.NATS != nil:
		return v1alpha1.SinkNATS
	case n.Spec.Alertmanager != nil:
		return v1alpha1.SinkAlertmanager
	}
	return ""
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
