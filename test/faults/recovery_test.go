package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/tcpproxy"
)

// scopes is how many kinds of a member are written to while its link is broken.
const scopes = 20

// recoveryLimit is what the recovery of all scopes of a member may take, in the 99th percentile.
const recoveryLimit = 317 * time.Millisecond

// lasting is for how long a link holds between two breaks.
const lasting = 1500 * time.Millisecond

// busyLimit is the same in a short turn, which shares the machine with other tests.
const busyLimit = 2 * time.Second

// broken is a way to break a link for a moment.
type broken struct {
	name    string
	limited bool // whether recoveryLimit holds: of a black hole nobody is told anything
	breaks  func(*member) error
}

var brokenLinks = []broken{
	{"cut", true, func(m *member) error { return m.Proxy.Set(tcpproxy.Mode{State: tcpproxy.Cut}) }},
	{"reset", true, func(m *member) error {
		if err := m.Proxy.Set(tcpproxy.Mode{State: tcpproxy.BlackHole}); err != nil { // so that it does not recover before what is missed is written
			return err
		}
		m.Proxy.Reset()
		return nil
	}},
	{"black hole", false, func(m *member) error { return m.Proxy.Set(tcpproxy.Mode{State: tcpproxy.BlackHole}) }},
}

func gadgetCRD(n int) string {
	return strings.NewReplacer("widgets", fmt.Sprintf("gadget%ds", n), "widget", fmt.Sprint("gadget", n), "Widget", fmt.Sprint("Gadget", n)).Replace(widgetCRD)
}

func gadgets(n int) string {
	return fmt.Sprintf("/apis/faults.example/v1/namespaces/default/gadget%ds", n)
}

// recoveries breaks the link of the first member again and again, and measures how long it takes
// from its return until every scope has what was written meanwhile.
func (r *rig) recoveries(only *regexp.Regexp) (text string) {
	rounds, limit := 2, busyLimit
	if all() {
		limit = recoveryLimit
		rounds = number(r.t, "RECOVERIES", 100)
	}
	ctx, m := r.t.Context(), r.members[0]
	release := r.pause()
	defer release()
	ready := false
	var b strings.Builder
	b.WriteString("| link | rounds | scopes | p50 | p99 | most | lists |\n|---|---|---|---|---|---|---|\n")
	for _, link := range brokenLinks {
		if !only.MatchString("recovery from " + link.name) {
			continue
		}
		if !ready {
			r.do(r.makeGadgets(ctx, m))
			ready = true
		}
		before, err := r.lists(ctx)
		r.do(err)
		var took []time.Duration
		for n := range rounds {
			if link.limited && n > 0 {
				// A scope whose watch does not last is retried less and less.
				select {
				case <-time.After(lasting):
				case <-ctx.Done():
				}
			}
			d, err := r.recover(ctx, m, link, n)
			if err != nil {
				r.t.Fatalf("recovery from %s: %v", link.name, err)
			}
			took = append(took, d)
			if d > limit && link.limited {
				r.t.Logf("recovery from %s took %s", link.name, round(d))
			}
		}
		after, err := r.lists(ctx)
		r.do(err)
		lists := 0
		for cause, n := range after {
			lists += n - before[cause]
		}
		slices.Sort(took)
		p99 := took[max(0, (len(took)*99+99)/100-1)]
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %s | %s | %d |\n", link.name, rounds, scopes, round(took[len(took)/2]), round(p99), round(took[len(took)-1]), lists)
		if link.limited && (p99 > limit || lists > 0) {
			r.t.Errorf("recovery from %s: p99 %s, want %s at most; %d lists, want none", link.name, p99, limit, lists)
		}
	}
	return b.String()
}

// makeGadgets has the member serve more kinds, with an object each, and waits for their scopes.
func (r *rig) makeGadgets(ctx context.Context, m *member) error {
	for n := range scopes {
		if err := m.Apply(ctx, []byte(gadgetCRD(n))); err != nil {
			return err
		}
	}
	for n := range scopes {
		body := object("faults.example/v1", fmt.Sprint("Gadget", n), "one", m.name, `"set":"gadget"`, `"spec":{"size":1}`)
		if err := r.untilErr(func() error { return m.send(ctx, http.MethodPost, gadgets(n), body) }); err != nil {
			return err
		}
	}
	return r.untilErr(func() error { return r.exactEverywhere(ctx) })
}

// recover breaks the link, writes to every kind, and has the link return.
func (r *rig) recover(ctx context.Context, m *member, link broken, round int) (time.Duration, error) {
	if err := link.breaks(m); err != nil {
		return 0, err
	}
	written := map[aggregate.Kind]string{}
	for n := range scopes {
		patch := fmt.Sprintf(`{"spec":{"size":%d}}`, 2+round)
		raw, err := m.writer.Patch("application/merge-patch+json").AbsPath(gadgets(n) + "/one").Body([]byte(patch)).DoRaw(ctx)
		if err != nil {
			return 0, err
		}
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(raw, &o); err != nil {
			return 0, err
		}
		written[aggregate.MakeKind(fmt.Sprint("Gadget", n), "faults.example")] = o.ResourceVersion
	}
	returned := time.Now()
	if err := m.Proxy.Set(tcpproxy.Mode{}); err != nil {
		return 0, err
	}
	err := kube.Until(ctx, patience, func() error {
		known, err := r.known(ctx)
		if err != nil {
			return err
		}
		got := 0
		for _, s := range known[m.name].Details {
			want, ok := written[s.Kind]
			if !ok {
				continue
			}
			if c, err := resourceversion.CompareResourceVersion(s.Applied, want); err != nil || c < 0 {
				return errors.Join(err, fmt.Errorf("%s is at %q, want %s", s.Kind, s.Applied, want))
			}
			got++
		}
		if got != scopes {
			return fmt.Errorf("%d scopes, want %d", got, scopes)
		}
		return nil
	})
	return time.Since(returned), err
}
