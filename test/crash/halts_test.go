package crash

import (
	"fmt"
	"slices"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate/planreader"
)

// haltChecks have a policy halted over its limit, again and again. A halt, and the Plan of what
// waits because of it, must survive some kills as they are; then somebody acknowledges it,
// which lets pass what is in the Plan.
type haltChecks struct {
	*harness

	created  int
	open     bool // objects were created, and are not all corrected
	halt     *v1alpha1.RecordedHalt
	planHash v1alpha1.Digest
	hold     int // how often it is looked at before it is acknowledged
	acked    map[string]acknowledged
	survived int
}

// acknowledged is a halt that somebody has acknowledged.
type acknowledged struct {
	at      time.Time
	targets []string // of its Plan
}

func (h *haltChecks) step() {
	h.Helper()
	s := h.state(haltBinding)
	switch {
	case h.halt != nil && h.acked[h.halt.ID].at.IsZero():
		h.mustStand(s.Halts)
	case len(s.Halts) > 0 && h.acked[s.Halts[0].ID].at.IsZero() && s.Halts[0].Plan != "":
		h.begin(&s.Halts[0])
	case len(s.Halts) > 0, h.open && h.under(haltBinding) != nil:
		return // its Plan is being recorded, or its acknowledgement, or something is written
	case h.ending && h.survived > 0:
		h.open = false
	default:
		h.open = true
		for range 1 + h.random.IntN(haltLimit+2) {
			h.violate(h.member, haltBinding, fmt.Sprintf("n-%d", h.created))
			h.created++
		}
	}
}

// begin notes a halt that has begun.
func (h *haltChecks) begin(halt *v1alpha1.RecordedHalt) {
	h.Helper()
	if halt.Reason != v1alpha1.OverLimit {
		h.Errorf("halt %s is for another reason: %s: %s", halt.ID, halt.Reason, halt.Message)
	}
	plan := v1alpha1.Plan{}
	if err := h.get(&plan, v1alpha1.Plans, halt.Plan); err != nil {
		h.Fatalf("the Plan of halt %s: %v", halt.ID, err)
	}
	h.halt, h.planHash, h.hold = halt, plan.Spec.Hash, 1+h.random.IntN(3)
}

// mustStand checks that the halt is as it was, with its Plan, and has it acknowledged some time.
func (h *haltChecks) mustStand(now []v1alpha1.RecordedHalt) {
	h.Helper()
	if len(now) != 1 || now[0].ID != h.halt.ID || !now[0].Since.Equal(&h.halt.Since) || now[0].Plan != h.halt.Plan {
		h.Errorf("halt %s since %v, of Plan %s, is not acknowledged, and the hub has %s", h.halt.ID, h.halt.Since.UTC(), h.halt.Plan, describe(now))
		h.halt = nil
		return
	}
	plan := v1alpha1.Plan{}
	if err := h.get(&plan, v1alpha1.Plans, h.halt.Plan); err != nil || plan.Spec.Hash != h.planHash || plan.Status.State != v1alpha1.PlanWaiting {
		h.Errorf("the Plan of halt %s, %s with hash %s, is now %q with hash %s, %v", h.halt.ID, h.halt.Plan, h.planHash, plan.Status.State, plan.Spec.Hash, err)
	}
	h.survived++
	if h.hold--; h.hold > 0 && !h.ending {
		return
	}
	h.acked[h.halt.ID] = acknowledged{at: time.Now(), targets: h.planned(&plan)}
	h.wish(func(w *wishes) { w.Acknowledge = h.halt.ID })
}

func describe(halts []v1alpha1.RecordedHalt) string {
	text := fmt.Sprintf("%d halts", len(halts))
	for _, h := range halts {
		text += fmt.Sprintf("; %s since %v, of Plan %q", h.ID, h.Since.UTC(), h.Plan)
	}
	return text
}

// planned returns the names of the objects that a Plan has.
func (h *haltChecks) planned(plan *v1alpha1.Plan) (names []string) {
	h.Helper()
	reader := planreader.New(h.hub.Client().CoreV1().RESTClient())
	for n := range int(plan.Spec.Parts) {
		groups, err := reader.Groups(h.Context(), plan, n+1)
		if err != nil {
			h.Fatalf("Plan %s: %v", plan.Name, err)
		}
		for _, g := range groups {
			for _, t := range g.Targets {
				names = append(names, t.Name)
			}
		}
	}
	return names
}

func (h *haltChecks) settled() error {
	if h.survived == 0 || h.open || h.halt != nil && h.acked[h.halt.ID].at.IsZero() {
		return fmt.Errorf("policy %s: something is left: %w", haltBinding, h.under(haltBinding))
	}
	return nil
}

// judge compares what was written with the limit and the acknowledgements, and what the hub had
// of halts with what people have done.
func (h *haltChecks) judge() {
	h.Helper()
	written := map[string]time.Time{} // when each was asked for first
	free := 0                         // that no acknowledgement had let pass by then
	requests := h.requests(h.member, haltBinding)
	for _, q := range requests {
		if !written[q.target].IsZero() {
			continue
		}
		written[q.target] = q.received
		if !h.isAllowed(q) {
			free++
		}
	}
	if free > haltLimit {
		h.Errorf("%d objects were written that no acknowledgement had let pass, the limit is %d", free, haltLimit)
	}
	begun, since := 0, map[string]time.Time{} // halts that there are, and when they were recorded
	for _, s := range h.stateChanges(haltBinding) {
		now := map[string]bool{}
		for i := range s.Halts {
			id := s.Halts[i].ID
			if now[id] = true; since[id].IsZero() {
				since[id] = s.completed
				begun++
			}
		}
		for id, from := range since {
			if now[id] {
				continue
			}
			delete(since, id)
			until := h.acked[id].at
			if until.IsZero() || until.After(s.received) {
				h.Errorf("halt %s has ended at %v, acknowledged at %v", id, s.received, until)
				until = s.received
			}
			h.nothingBetween(requests, id, from, until)
		}
	}
	if begun != len(h.acked) {
		h.Errorf("%d halts have begun, %d were acknowledged", begun, len(h.acked))
	}
	h.Logf("halts: %d, of which %d were acknowledged; seen to stand %d times; %d objects written, %d of them within the limit of %d",
		begun, len(h.acked), h.survived, len(written), free, haltLimit)
	if h.survived == 0 || len(written) <= haltLimit {
		h.Error("there was no halt to survive, or nothing was acknowledged")
	}
}

// isAllowed reports whether an acknowledgement had let an object pass when a request came.
func (h *haltChecks) isAllowed(q request) bool {
	for _, a := range h.acked {
		if a.at.Before(q.received) && slices.Contains(a.targets, q.target) {
			return true
		}
	}
	return false
}

// nothingBetween checks that nothing was asked for while the policy was halted, but for what was
// under way.
func (h *haltChecks) nothingBetween(requests []request, halt string, from, until time.Time) {
	h.Helper()
	const underway = 500 * time.Millisecond
	for _, q := range requests {
		if q.received.After(from.Add(underway)) && q.received.Before(until) {
			h.Errorf("%s was written at %v, %v after halt %s was recorded", q.target, q.received, q.received.Sub(from), halt)
		}
	}
}
