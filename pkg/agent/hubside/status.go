package hubside

import (
	"context"
	"encoding/json"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"federator.dev/federator/api/v1alpha1"
)

const (
	statusInterval = 5 * time.Second  // between looks at all Members
	contactEvery   = 5 * time.Minute  // that lastContactTime is written, while nothing else changes
	changeEvery    = 10 * time.Second // that a change of connected is written, of one Member
	otherEvery     = time.Minute      // that anything else is
	startGrace     = 30 * time.Second // for agents to come back after a restart
	abandoned      = 3 * contactEvery // after which the process that wrote connected is taken to be gone
	statusRate     = 10               // writes a second, of all Members
)

// statusWriter writes the statuses of Members. Of several processes any may: the one that is connected says so, and the
// one that wrote it takes it back.
type statusWriter struct {
	client   dynamic.Interface
	members  memberInformers
	registry *registry
	process  string
	limit    *rate.Limiter
	written  map[types.UID]time.Time // when this process last wrote that of a Member
	started  time.Time
	failed   func(member string, err error)
}

func (w *statusWriter) run(ctx context.Context) {
	w.started, w.written, w.limit = time.Now(), map[types.UID]time.Time{}, rate.NewLimiter(statusRate, statusRate)
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-w.registry.changed:
		case <-ctx.Done():
			return
		}
		w.write(ctx)
	}
}

// write writes what is due.
func (w *statusWriter) write(ctx context.Context) {
	seen := map[types.UID]time.Time{}
	var due []*v1alpha1.Member
	w.members.each(func(m *v1alpha1.Member) {
		if at, is := w.written[m.UID]; is {
			seen[m.UID] = at
		}
		if w.due(m, w.registry.state(string(m.UID)), time.Now()) {
			due = append(due, m)
		}
	})
	w.written = seen
	for _, m := range due {
		if w.limit.Wait(ctx) != nil {
			return
		}
		w.written[m.UID] = time.Now()
		if err := w.patch(ctx, m, w.registry.state(string(m.UID))); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			w.failed(m.Namespace+"/"+m.Name, err)
		}
	}
}

// due reports whether the status of a Member is to be written.
func (w *statusWriter) due(m *v1alpha1.Member, s state, now time.Time) bool {
	was, since := &m.Status, now.Sub(w.written[m.UID])
	said := was.Connected != nil && *was.Connected
	switch {
	case s.connected != said || was.Connected == nil:
		if since < changeEvery {
			return false
		}
		return s.connected || was.Connected == nil ||
			now.Sub(w.started) >= startGrace && (was.Process == w.process || was.LastContactTime == nil || now.Sub(was.LastContactTime.Time) >= abandoned)
	case !s.connected, since < otherEvery:
		return false
	}
	return s.version != "" && s.version != was.AgentVersion ||
		was.LastContactTime == nil || now.Sub(was.LastContactTime.Time) >= contactEvery ||
		was.CertificateExpires == nil || s.expires.After(was.CertificateExpires.Time.Add(time.Second))
}

func (w *statusWriter) patch(ctx context.Context, m *v1alpha1.Member, s state) error {
	status := v1alpha1.MemberStatus{Connected: &s.connected, AgentVersion: s.version, Process: w.process}
	if !s.heard.IsZero() {
		status.LastContactTime = &metav1.Time{Time: s.heard}
	}
	if !s.expires.IsZero() {
		status.CertificateExpires = &metav1.Time{Time: s.expires}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": m.UID}, "status": status}) // what is not known stays
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	_, err = w.client.Resource(v1alpha1.Resource(v1alpha1.Members)).Namespace(m.Namespace).
		Patch(ctx, m.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "federator"}, "status")
	return err
}
