package notifications

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/notify"
	"federator.dev/federator/pkg/notify/alerts"
	"federator.dev/federator/pkg/notify/selection"
	"federator.dev/federator/pkg/notify/sinks"
	"federator.dev/federator/pkg/policy"
)

// TestController_SlowHub: it is asked for several Secrets at once, so that one after another waits for no more than one request.
func TestController_SlowHub(t *testing.T) {
	t.Parallel()
	h, in := newHub(t), newInbox(t)
	const together = 10
	var asked atomic.Int64
	all := make(chan struct{})
	wait := func(_ http.ResponseWriter, r *http.Request) bool {
		if asked.Add(1) == together {
			close(all)
		}
		select {
		case <-all:
		case <-r.Context().Done():
		}
		return false
	}
	h.secret.Store(&wait)
	for i := range together {
		h.change(fmt.Sprint("n", i), types.UID(fmt.Sprint("uid-", i)), webhookTo(in.url))
	}
	start(t, h, nil)
	select {
	case <-all:
	case <-time.After(8 * time.Second):
		t.Errorf("%d Secrets were asked for", asked.Load())
	}
}

// TestController_NamedSinceAMoment: what is recorded of a policy is sent from the moment on that it names the Notification.
func TestController_NamedSinceAMoment(t *testing.T) {
	t.Parallel()
	h, in := newHub(t), newInbox(t)
	h.change("n", "uid", webhookTo(in.url))
	var names atomic.Pointer[map[string]bool]
	names.Store(&map[string]bool{})
	var log *history.History
	start(t, h, func(o *Options) {
		log = o.History.(*history.History)
		o.Notified = func(string) map[string]bool { return *names.Load() }
	})
	h.eventually("it is ready", func(all map[string]*v1alpha1.Notification) bool {
		return readyOf(all["n"]).Status == metav1.ConditionTrue
	})
	names.Store(&map[string]bool{"tier": true})
	if err := log.Tell(t.Context(), []history.Record{opened("tier", "a")}); err != nil {
		t.Fatal(err)
	}
	<-log.More(0)
	in.wait(t, "a violation of the policy", 1)
}

// TestController_LabelsAreKnown: before those of members are, nothing is left out for want of them.
func TestController_LabelsAreKnown(t *testing.T) {
	t.Parallel()
	h, in := newHub(t), newInbox(t)
	rule := v1alpha1.NotificationRule{Types: []v1alpha1.NotificationType{v1alpha1.NotifyViolation}}
	rule.Members.Labels = &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"region": "eu"}}
	h.change("n", "uid", webhookTo(in.url, rule))
	h.change("other", "uid-2", webhookTo(in.url))
	var state atomic.Pointer[policy.State]
	var log *history.History
	start(t, h, func(o *Options) {
		o.State = state.Load
		log = o.History.(*history.History)
		if err := log.Tell(t.Context(), []history.Record{opened("tier", "a")}); err != nil {
			t.Fatal(err)
		}
		<-log.More(0)
	})
	h.eventually("another is ready", func(all map[string]*v1alpha1.Notification) bool {
		return readyOf(all["other"]).Status == metav1.ConditionTrue
	})
	state.Store(newState(t))
	in.wait(t, "a violation in the member", 1)
}

// TestController_MadeAgainUnderItsName: its series are not removed with those of the one before.
func TestController_MadeAgainUnderItsName(t *testing.T) {
	t.Parallel()
	h, in := newHub(t), newInbox(t)
	state, registry := newState(t), prometheus.NewRegistry()
	h.change("n", "uid-1", alertsTo(in.url))
	start(t, h, func(o *Options) {
		o.Metrics, o.State = registry, func() *policy.State { return state }
		o.Facts = func() (FactSource, error) {
			return facts{func() []notify.Fact { return []notify.Fact{planWaits("p")} }}, nil
		}
	})
	in.wait(t, "alerts", 2)
	h.change("n", "", nil)
	h.change("n", "uid-2", alertsTo(in.url))
	h.eventually("it is ready", func(all map[string]*v1alpha1.Notification) bool {
		return readyOf(all["n"]).Status == metav1.ConditionTrue && all["n"].UID == "uid-2"
	})
	in.wait(t, "alerts of the second", 5)
	found := false
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		found = found || f.GetName() == "federator_notification_sent_total" && len(f.GetMetric()) == 1
	}
	if !found {
		t.Error("there is no series of what it has sent")
	}
}

// TestController_Panic: it is not said to be well, and what panicked is not said in a status.
func TestController_Panic(t *testing.T) {
	t.Parallel()
	h, in := newHub(t), newInbox(t)
	state := newState(t)
	h.change("n", "uid", alertsTo(in.url))
	start(t, h, func(o *Options) {
		o.State = func() *policy.State { return state }
		o.Facts = func() (FactSource, error) { return facts{func() []notify.Fact { panic("text of an object") }}, nil }
	})
	h.eventually("it is not ready", func(all map[string]*v1alpha1.Notification) bool {
		c := readyOf(all["n"])
		text, _ := json.Marshal(all["n"].Status)
		if strings.Contains(string(text), "text of an object") || strings.Contains(string(text), "goroutine") {
			t.Errorf("%s", text)
			return true
		}
		return c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.NotificationFailing
	})
}

// TestController_SecretOfAnotherSpec: the credentials of one receiver are not sent to another.
func TestController_SecretOfAnotherSpec(t *testing.T) {
	t.Parallel()
	h, one, other := newHub(t), newInbox(t), newInbox(t)
	state := newState(t)
	h.change("n", "uid", alertsTo(one.url))
	start(t, h, func(o *Options) {
		o.State = func() *policy.State { return state }
		o.Facts = func() (FactSource, error) {
			return facts{func() []notify.Fact { return []notify.Fact{planWaits("p")} }}, nil
		}
	})
	one.wait(t, "alerts", 1)
	down := func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
	h.secret.Store(&down)
	spec := alertsTo(other.url)
	spec.Alertmanager.SecretRef.Name = "another"
	h.change("n", "uid", spec)
	h.eventually("it cannot begin", func(all map[string]*v1alpha1.Notification) bool {
		return readyOf(all["n"]).Reason == v1alpha1.NotificationFailing || other.all() != ""
	})
	if got := other.all(); got != "" {
		t.Errorf("it was sent %s", got)
	}
}

// TestController_AnswersRepeatText: what a receiver says of a message with text is not said to who reads the Notification.
func TestController_AnswersRepeatText(t *testing.T) {
	t.Parallel()
	for _, includes := range []bool{true, false} {
		t.Run(fmt.Sprint(includes), func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "not understood: the host of the shop", http.StatusBadRequest)
			}))
			t.Cleanup(s.Close)
			h := newHub(t)
			spec := webhookTo(s.URL, v1alpha1.NotificationRule{Types: []v1alpha1.NotificationType{v1alpha1.NotifyViolation}})
			spec.IncludeText = includes
			h.change("n", "uid", spec)
			start(t, h, func(o *Options) {
				log := o.History.(*history.History)
				if err := log.Tell(t.Context(), []history.Record{opened("tier", "a")}); err != nil {
					t.Fatal(err)
				}
				<-log.More(0)
			})
			var text []byte
			h.eventually("it fails", func(all map[string]*v1alpha1.Notification) bool {
				text, _ = json.Marshal(all["n"].Status)
				return readyOf(all["n"]).Reason == v1alpha1.NotificationFailing
			})
			if got := string(text); !strings.Contains(got, "400 Bad Request") || strings.Contains(got, "of the shop") == includes {
				t.Errorf("%s", got)
			}
		})
	}
}

// TestWritten_Due: a sink that fails now and then does not have a status written each time.
func TestWritten_Due(t *testing.T) {
	w := written{}
	now := time.Now()
	writes := 0
	for range 60 { // seconds
		now = now.Add(time.Second)
		if w.due(true, now) {
			w.at = now
			writes++
		}
	}
	if writes != 6 {
		t.Errorf("%d statuses were written in a minute", writes)
	}
}

// newAlerting returns what posts the facts that there are, by dial.
func newAlerting(t *testing.T, url string, list func() []notify.Fact, dial sinks.Dial) *alerting {
	t.Helper()
	selects, err := selection.New(selection.Options{Rules: []selection.Rule{{Types: []string{"Policy"}}}})
	if err != nil {
		t.Fatal(err)
	}
	open, err := alerts.New(alerts.Options{Selection: selects})
	if err != nil {
		t.Fatal(err)
	}
	to, err := sinks.NewAlertmanager(sinks.AlertmanagerOptions{URLs: []string{url}, Dial: dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { to.Close() })
	m := newMetrics()
	return &alerting{
		open: open, to: to, every: time.Minute, origin: "/o", facts: facts{list}, leads: func() bool { return true }, alone: true, firing: map[string]sinks.Alert{},
		sent: m.sent.WithLabelValues("n"), failed: m.failed.WithLabelValues("n"), log: slog.New(slog.DiscardHandler),
	}
}

// TestAlerting_AwayForHours: what has come and gone meanwhile is not kept for ever, as it has ended by itself.
func TestAlerting_AwayForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := 0
		list := func() []notify.Fact { i++; return []notify.Fact{planWaits(fmt.Sprint("p", i))} }
		a := newAlerting(t, "http://127.0.0.1:1", list, func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("away") })
		state := newState(t)
		for range 500 {
			if err := a.post(t.Context(), state); err == nil {
				t.Fatal("it is not away")
			}
			time.Sleep(time.Minute)
		}
		if n := len(a.firing); n > 20 {
			t.Errorf("%d alerts are kept", n)
		}
	})
}

// TestAlerting_LostLease: who does not lead any more does not say that what goes on has ended.
func TestAlerting_LostLease(t *testing.T) {
	in := newInbox(t)
	a := newAlerting(t, in.url, func() []notify.Fact { return []notify.Fact{planWaits("p")} }, nil)
	state := newState(t)
	for _, leads := range []bool{true, false} {
		a.leads = func() bool { return leads }
		if err := a.post(t.Context(), state); err != nil {
			t.Fatal(err)
		}
	}
	for _, body := range in.got {
		var list []sinks.Alert
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatal(err)
		}
		for _, x := range list {
			if !x.EndsAt.After(time.Now()) {
				t.Errorf("%v has ended", x.Labels)
			}
		}
	}
}

// TestAlerting_OthersGoOn: of an alert that other processes may have a part of, none says that it has ended.
func TestAlerting_OthersGoOn(t *testing.T) {
	in := newInbox(t)
	a := newAlerting(t, in.url, func() []notify.Fact { return nil }, nil)
	a.alone = false
	labels := map[string]string{"alertname": alerts.ViolationName, "policy": "tier"}
	a.firing[keyOf(labels)] = sinks.Alert{Labels: labels, StartsAt: time.Now().Add(-time.Hour), EndsAt: time.Now().Add(time.Minute)}
	if err := a.post(t.Context(), newState(t)); err != nil {
		t.Fatal(err)
	}
	if got := in.all(); strings.Contains(got, "tier") {
		t.Errorf("%s was sent", got)
	}
}
