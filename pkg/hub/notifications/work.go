package notifications

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/internal/component"
	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/notify/alerts"
	"federator.dev/federator/pkg/notify/delivery"
	"federator.dev/federator/pkg/notify/sinks"
	"federator.dev/federator/pkg/policy"
)

// sink is where messages go.
type sink interface {
	delivery.Sink
	Close() error
}

// counting counts what a sink takes.
type counting struct {
	delivery.Sink

	metrics *metrics
	name    string
}

// Send implements delivery.Sink.
func (c counting) Send(ctx context.Context, messages []sinks.Message) (int, error) {
	n, err := c.Sink.Send(ctx, messages)
	c.metrics.sent.WithLabelValues(c.name).Add(float64(n))
	if err != nil && ctx.Err() == nil {
		c.metrics.failed.WithLabelValues(c.name).Inc()
	}
	return n, err
}

// delivering sends transitions.
type delivering struct {
	delivery *delivery.Delivery
	to       sink
	before   delivery.Reported
}

func (d *delivering) run(ctx context.Context) error { return d.delivery.Run(ctx, d.before) }
func (d *delivering) status() delivery.Status       { return d.delivery.Status() }
func (d *delivering) close() error                  { return d.to.Close() }

// minValid is how long an alert is valid at least: a process that starts again has judged everything by then.
const minValid = 10 * time.Minute

// maxRetry is how long it is waited at most after a failure.
const maxRetry = 10 * time.Second

// alerting sends the alerts that are open, as long as they are.
type alerting struct {
	open   *alerts.Alerts
	to     *sinks.Alertmanager
	every  time.Duration
	origin string
	state  func() *policy.State
	facts  FactSource
	leads  func() bool
	alone  bool // no other process sends
	sent   prometheus.Counter
	failed prometheus.Counter
	log    *slog.Logger

	// firing are those that were sent and have not been said to have ended, by their labels. It is run's.
	firing map[string]sinks.Alert

	mu  sync.Mutex
	now delivery.Status
}

func (a *alerting) close() error { return a.to.Close() }

func (a *alerting) status() delivery.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now
}

func (a *alerting) run(ctx context.Context) error {
	a.firing = map[string]sinks.Alert{}
	facts := component.Start(ctx, a.facts.Run, nil)
	defer facts.Stop() //nolint:errcheck // It ends because it is told to.
	for {
		wait := a.every
		if state := a.state(); state == nil {
			wait = min(wait, maxRetry) // nothing is known, which is not that nothing is open
		} else if err := a.post(ctx, state); err != nil && ctx.Err() == nil {
			wait = min(wait, maxRetry)
		}
		if err := sleep.For(ctx, wait); err != nil {
			return err
		}
	}
}

// post sends what is open, and that what was is not any more.
func (a *alerting) post(ctx context.Context, state *policy.State) error {
	now := time.Now().UTC()
	list, leads, factsKnown := a.open.Open(state, state.Judges), a.leads(), false
	if leads {
		facts, complete := a.facts.Facts()
		list, factsKnown = append(list, a.open.Facts(facts)...), complete
	}
	open := make(map[string]bool, len(list))
	out := make([]sinks.Alert, 0, len(list))
	for i := range list {
		alert := a.alert(&list[i], now)
		key := keyOf(alert.Labels)
		open[key], a.firing[key] = true, alert
		out = append(out, alert)
	}
	for key, alert := range a.firing {
		violation := alert.Labels["alertname"] == alerts.ViolationName
		switch {
		case open[key]:
		case !alert.EndsAt.After(now), violation && !a.answers(&alert, state), !violation && !leads:
			delete(a.firing, key) // it ends by itself, unless another process goes on with it
		case !violation && !factsKnown:
			open[key] = true // it may go on
			out = append(out, a.valid(alert, now))
		default:
			alert.EndsAt = now
			out = append(out, alert)
		}
	}
	err := a.to.Post(ctx, out)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.now.Failures, a.now.Err = a.now.Failures+1, err
		a.failed.Inc()
		a.log.Error("alerts could not be sent", "failures", a.now.Failures, "error", err)
		return err
	}
	a.sent.Add(float64(len(out)))
	maps.DeleteFunc(a.firing, func(key string, _ sinks.Alert) bool { return !open[key] })
	a.now = delivery.Status{Reported: delivery.Reported{Until: now}, LastSent: now}
	return nil
}

// answers reports whether this process can say that violations of an alert have ended: others may have some of them.
func (a *alerting) answers(alert *sinks.Alert, state *policy.State) bool {
	member := alert.Labels["member"]
	return a.alone || member != "" && state.Judges(member)
}

// valid returns an alert that goes on for a while.
func (a *alerting) valid(alert sinks.Alert, now time.Time) sinks.Alert {
	alert.EndsAt = now.Add(max(minValid, 4*a.every))
	a.firing[keyOf(alert.Labels)] = alert
	return alert
}

func (a *alerting) alert(from *alerts.Alert, now time.Time) sinks.Alert {
	out := sinks.Alert{
		Labels: from.Labels, StartsAt: from.Since, EndsAt: now.Add(max(minValid, 4*a.every)),
		Annotations: map[string]string{"summary": from.Summary, "origin": a.origin},
	}
	if from.Description != "" {
		out.Annotations["description"] = from.Description
	}
	if out.StartsAt.IsZero() {
		out.StartsAt = now
		if before, is := a.firing[keyOf(from.Labels)]; is {
			out.StartsAt = before.StartsAt
		}
	}
	return out
}

// keyOf names labels.
func keyOf(labels map[string]string) string {
	var b strings.Builder
	for _, name := range sortedKeys(labels) {
		b.WriteString(name + "\x00" + labels[name] + "\x00")
	}
	return b.String()
}
