package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/charts"
	"federator.dev/federator/test/kube"
)

// hubWrites counts what federator writes to the hub, according to the hub's audit log: in a
// minute in which nothing happens, and for each correction. What stores nothing counts, too:
// reviews, and dry runs.
func hubWrites(ctx context.Context, b *bench) ([]row, error) {
	binary, err := b.measured(ctx)
	if err != nil {
		return nil, err
	}
	now, err := b.countHubWrites(ctx, binary)
	if err != nil {
		return nil, err
	}
	var before hubWriteCounts
	if b.before != "" {
		if binary, err = filepath.Abs(b.before); err == nil {
			before, err = b.countHubWrites(ctx, binary)
		}
		if err != nil {
			return nil, fmt.Errorf("-before: %w", err)
		}
	}
	return []row{
		lower("hub/writes_at_rest", "per minute", now.atRest.perMinute(), before.atRest.perMinute(), now.atRest.String()),
		lower("hub/writes_per_correction", "", now.correcting.each(), before.correcting.each(), now.correcting.String()),
	}, nil
}

// writeCount is what was written to the hub meanwhile, by resource.
type writeCount struct {
	during time.Duration
	events int // corrections
	of     map[string]int
}

func (w writeCount) sum() (n int) {
	for _, c := range w.of {
		n += c
	}
	return n
}

func (w writeCount) perMinute() float64 { return float64(w.sum()) / max(w.during.Minutes(), 1) }

func (w writeCount) each() float64 { return float64(w.sum()) / float64(max(w.events, 1)) }

func (w writeCount) String() string {
	list := make([]string, 0, len(w.of))
	for _, r := range slices.SortedFunc(maps.Keys(w.of), func(a, b string) int { return cmp.Or(cmp.Compare(w.of[b], w.of[a]), strings.Compare(a, b)) }) {
		list = append(list, fmt.Sprintf("%d %s", w.of[r], r))
	}
	text := strings.Join(list, ", ") + " in " + w.during.Round(time.Second).String()
	if w.events > 0 {
		text += fmt.Sprintf(", %d corrections", w.events)
	}
	return text
}

// hubWriteCounts are those of one binary.
type hubWriteCounts struct{ atRest, correcting writeCount }

func (b *bench) countHubWrites(ctx context.Context, binary string) (out hubWriteCounts, err error) {
	fleet, err := kube.Start(ctx, kube.Options{Members: 1, Audit: true})
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, fleet.Stop()) }()
	observed, err := b.setUpCorrections(ctx, fleet)
	if err == nil {
		err = installAdmission(ctx, fleet.Hub)
	}
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithCancel(ctx)
	server, err := b.serveCorrections(ctx, fleet, binary)
	if err != nil {
		cancel()
		return out, err
	}
	defer func() { cancel(); _ = server.Wait() }() // it was canceled
	client, err := kubernetes.NewForConfig(fleet.Members[0].DirectRESTConfig())
	if err != nil {
		return out, err
	}
	if _, _, err := drift(ctx, client, "first", 1); err != nil { // everything has begun
		return out, err
	}
	if err := awaitEvaluations(ctx, fleet, observed+1); err != nil {
		return out, err
	}
	pause := func(d time.Duration) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(d):
			return nil
		}
	}
	if err := pause(30 * time.Second); err != nil { // what the start has left to write
		return out, err
	}
	if out.atRest, err = writesDuring(fleet, 0, func() error { return pause(2 * time.Minute) }); err != nil {
		return out, err
	}
	drifts := b.n(300)
	out.correcting, err = writesDuring(fleet, 2*drifts, func() error {
		if _, _, err := drift(ctx, client, "drift", drifts); err != nil {
			return err
		}
		return pause(15 * time.Second) // statuses and Events follow
	})
	return out, err
}

// installAdmission installs the admission policies of the chart, which federator tries out now
// and then: with dry runs.
func installAdmission(ctx context.Context, hub *kube.Hub) error {
	policies, err := charts.Admission("kubernetes-admin") // as whom federator runs here
	for _, manifests := range policies {
		err = errors.Join(err, hub.Apply(ctx, []byte(manifests)))
	}
	return err
}

// writesDuring counts the hub's writes by federator while something happens. Renewals of
// Leases, which depend on the time alone, count only where nothing else happens.
func writesDuring(fleet *kube.Fleet, corrections int, f func() error) (writeCount, error) {
	out := writeCount{events: corrections, of: map[string]int{}}
	before, err := fleet.Hub.Audit()
	if err != nil {
		return out, err
	}
	started := time.Now()
	if err := f(); err != nil {
		return out, err
	}
	out.during = time.Since(started)
	after, err := fleet.Hub.Audit()
	if err != nil {
		return out, err
	}
	for _, e := range after[len(before):] {
		resource := e.ObjectRef.Resource
		if !strings.HasPrefix(e.UserAgent, "federator") || resource == "leases" && corrections > 0 {
			continue
		}
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		if strings.Contains(e.RequestURI, "dryRun=") {
			resource += " (dry runs)"
		}
		out.of[e.Verb+" "+resource]++
	}
	return out, nil
}
