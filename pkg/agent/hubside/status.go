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
	claimGrace     = 10 * time.Second // for another process to claim an agent that one has lost
	abandoned      = 3 * contactEvery // after which the process that claims an agent is taken to be gone
	statusRate     = 10               // writes a second, of all Members
)

// statusWriter writes the statuses of Members. Of several processes that are connected to an agent one claims it, by its name in
// the status. One that loses the agent takes its name out and leaves connected, for another process to claim the agent; only where none does
// it is written that the agent is not connected.
type statusWriter struct {
	client    dynamic.Interface
	members   memberInformers
	registry  *registry
	process   string
	limit     *rate.Limiter
	written   map[types.UID]time.Time // when this process last wrote that of a Member
	unclaimed map[types.UID]time.Time // since when no process claims one that is said to be connected
	started   time.Time
	failed    func(member string, err error)
}

// deed is what is to be done with a status.
type deed int

const (
	keep    deed = iota
	tell         // what this process knows of the agent
	release      // that this process has not got it any more
	empty        // it has no agent
)

func (w *statusWriter) run(ctx context.Context) {
	w.started, w.limit = time.Now(), rate.NewLimiter(statusRate, statusRate)
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

// see takes note of what there is.
func (w *statusWriter) see(all []*v1alpha1.Member, now time.Time) {
	written, unclaimed := map[types.UID]time.Time{}, map[types.UID]time.Time{}
	for _, m := range all {
		if at, is := w.written[m.UID]; is {
			written[m.UID] = at
		}
		if m.Status.Connected != nil && *m.Status.Connected && m.Status.Process == "" {
			unclaimed[m.UID] = now
			if at, is := w.unclaimed[m.UID]; is {
				unclaimed[m.UID] = at
			}
		}
	}
	w.written, w.unclaimed = written, unclaimed
}

// write writes what is due.
func (w *statusWriter) write(ctx context.Context) {
	var all []*v1alpha1.Member
	w.members.each(func(m *v1alpha1.Member) { all = append(all, m) })
	now := time.Now()
	w.see(all, now)
	for _, m := range all {
		if w.due(m, w.registry.state(string(m.UID)), now) == keep {
			continue
		}
		if w.limit.Wait(ctx) != nil {
			return
		}
		if m = w.members.now(m); m == nil { // meanwhile another process may have claimed it
			continue
		}
		state := w.registry.state(string(m.UID))
		do := w.due(m, state, time.Now())
		if do == keep {
			continue
		}
		w.written[m.UID] = time.Now()
		if err := w.patch(ctx, m, do, state); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			w.failed(m.Namespace+"/"+m.Name, err)
		}
	}
}

// due returns what is to be done with the status of a Member.
func (w *statusWriter) due(m *v1alpha1.Member, s state, now time.Time) deed {
	was, since := &m.Status, now.Sub(w.written[m.UID])
	if since < changeEvery || m.DeletionTimestamp != nil {
		return keep
	}
	if m.Spec.Agent == nil {
		if *was == (v1alpha1.MemberStatus{}) {
			return keep
		}
		return empty
	}
	said, claimed := was.Connected != nil && *was.Connected, was.Process != "" || w.process == ""
	do := keep
	switch {
	case s.connected && said && claimed:
		if since >= otherEvery && (s.version != "" && s.version != was.AgentVersion ||
			was.LastContactTime == nil || now.Sub(was.LastContactTime.Time) >= contactEvery ||
			was.CertificateExpires == nil || s.expires.After(was.CertificateExpires.Time.Add(time.Second))) {
			do = tell
		}
	case s.connected, was.Connected == nil:
		do = tell
	case !said, now.Sub(w.started) < startGrace:
	case was.Process == "":
		if at, is := w.unclaimed[m.UID]; is && now.Sub(at) >= claimGrace {
			do = tell
		}
	case was.Process == w.process:
		do = release
	case was.LastContactTime == nil || now.Sub(was.LastContactTime.Time) >= abandoned:
		do = tell
	}
	return do
}

func (w *statusWriter) patch(ctx context.Context, m *v1alpha1.Member, do deed, s state) error {
	status := map[string]any{} // what is not known stays
	if !s.heard.IsZero() {
		status["lastContactTime"] = metav1.Time{Time: s.heard}
	}
	switch do {
	case tell:
		status["connected"], status["process"] = s.connected, w.process
		if s.version != "" {
			status["agentVersion"] = s.version
		}
		if !s.expires.IsZero() {
			status["certificateExpires"] = metav1.Time{Time: s.expires}
		}
	case release:
		status["process"] = nil
	default:
		status = map[string]any{"connected": nil, "agentVersion": nil, "lastContactTime": nil, "certificateExpires": nil, "process": nil}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": m.UID}, "status": status})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	_, err = w.client.Resource(v1alpha1.Resource(v1alpha1.Members)).Namespace(m.Namespace).
		Patch(ctx, m.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "federator"}, "status")
	return err
}
