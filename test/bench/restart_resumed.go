package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/kube"
)

// writtenKind is a kind of which events come at a rate, in a member in which nobody else writes it.
type writtenKind struct {
	kind      aggregate.Kind
	resource  string
	perSecond int
}

var writtenKinds = []writtenKind{{"PodTemplate", "podtemplates", 0}, {"LimitRange", "limitranges", 1}, {"ConfigMap", "configmaps", 50}}

// outages are those that are told apart. -outage says which the longest is that is waited for.
var outages = []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute}

// cacheWindow is the history that a server's watch cache grows for: its capacity is what it had to
// be to hold that much. By then it is what it stays at the rates that are written.
const cacheWindow = 75 * time.Second

// resumed measures which scopes go on after an outage, and which are listed. The watch cache of a
// real server decides that, in real time: as many events in less time would make it grow.
func resumed(ctx context.Context, b *bench) (rows []row, err error) {
	fleet, err := kube.Start(ctx, kube.Options{Members: 1, NoHub: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fleet.Stop()) }()
	config := fleet.Members[0].DirectRESTConfig()
	writing, stop := context.WithCancel(ctx)
	var writers errgroup.Group
	defer func() { err = errors.Join(err, writers.Wait()) }()
	defer stop()
	for _, k := range writtenKinds {
		w, err := newKindWriter(ctx, config, k)
		if err != nil {
			return nil, err
		}
		writers.Go(func() error { return w.run(writing) })
	}
	played := slices.DeleteFunc(slices.Clone(outages), func(d time.Duration) bool { return d > b.outage })
	listed, err := b.outagesOf(ctx, config, played)
	for n, d := range played[:len(listed)] {
		for i, k := range writtenKinds {
			r := row{Name: fmt.Sprintf("restart/resumed %s, %d/s", brief(d), k.perSecond), Unit: "of 1", Value: 1, Note: "scopes; a real kube-apiserver, in real time"}
			if causes := listed[n][i]; len(causes) > 0 {
				r.Value, r.Note = 0, r.Note+fmt.Sprintf("; listed: %s", strings.Join(causes, ", "))
			}
			rows = append(rows, r)
		}
	}
	return rows, err
}

// brief is a duration of whole minutes, or of less than one, as people write it.
func brief(d time.Duration) string {
	if d >= time.Minute {
		return fmt.Sprint(int(d.Minutes()), "m")
	}
	return d.String()
}

// outagesOf ends a process for each outage, all at once, starts them again one by one, and returns why
// each of writtenKinds was listed by each.
func (b *bench) outagesOf(ctx context.Context, config *rest.Config, all []time.Duration) (listed [][][]string, err error) {
	dir, err := os.MkdirTemp(b.dir, "resumed-")
	if err != nil {
		return nil, err
	}
	spec, err := specOf(config)
	if err != nil {
		return nil, err
	}
	var kinds []string
	for _, k := range writtenKinds {
		kinds = append(kinds, string(k.kind))
	}
	start := func(n, run int) (*follower, error) {
		f, err := followAs(ctx, followOptions{dir: filepath.Join(dir, fmt.Sprint(n)), run: run}, contexts{spec}, kinds...)
		if err != nil {
			return nil, err
		}
		if err := poll(ctx, time.Minute, func() bool { return f.allSynced(len(kinds)) }); err != nil {
			f.stop()
			return nil, err
		}
		return f, nil
	}
	var running []*follower
	defer func() {
		for _, f := range running {
			f.stop()
		}
	}()
	for n := range all {
		f, err := start(n, 0)
		if err != nil {
			return nil, err
		}
		running = append(running, f)
	}
	if err := wait(ctx, cacheWindow+cacheWindow/4); err != nil { // so that the server's caches are what they stay
		return nil, err
	}
	for _, f := range running {
		f.stop()
	}
	running = nil
	ended := time.Now()
	for n, d := range all {
		if err := wait(ctx, time.Until(ended.Add(d))); err != nil {
			return listed, err
		}
		f, err := start(n, 1)
		if err != nil {
			return listed, err
		}
		var causes [][]string
		for _, k := range writtenKinds {
			causes = append(causes, f.relists(k.kind))
		}
		f.stop()
		b.progress("   after %v: listed %v", d, causes)
		listed = append(listed, causes)
	}
	return listed, nil
}

// wait waits for a time that is what is measured.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// allSynced reports whether so many kinds are kept up to date by this process, which has proved
// that it has what the member has: by a list or, where it went on without, by an audit.
func (f *follower) allSynced(kinds int) bool {
	n := 0
	for _, m := range f.manager.Members() {
		for _, d := range m.Details {
			if d.State == aggregate.Synced && d.Proved != nil {
				n++
			}
		}
	}
	return n >= kinds
}

// relists are the causes for which a kind was listed.
func (f *follower) relists(kind aggregate.Kind) (causes []string) {
	for _, m := range f.manager.Members() {
		for _, d := range m.Details {
			for cause, n := range d.Relists {
				if d.Kind == kind && n > 0 {
					causes = append(causes, cause)
				}
			}
		}
	}
	slices.Sort(causes)
	return causes
}

// kindWriter writes objects of a kind.
type kindWriter struct {
	writtenKind
	client dynamic.ResourceInterface
}

// writtenObjects is how many objects of a kind are written in turn.
const writtenObjects = 20

func newKindWriter(ctx context.Context, config *rest.Config, k writtenKind) (*kindWriter, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	w := &kindWriter{k, client.Resource(schema.GroupVersionResource{Version: "v1", Resource: k.resource}).Namespace(metav1.NamespaceDefault)}
	for n := range writtenObjects {
		body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":%q,"metadata":{"name":"bench-%d"}%s}`, k.kind, n, map[aggregate.Kind]string{
			"PodTemplate": `,"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"a"}]}}`,
			"LimitRange":  `,"spec":{"limits":[]}`,
		}[k.kind])
		if _, err := w.client.Patch(ctx, fmt.Sprint("bench-", n), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "bench"}); err != nil {
			return nil, fmt.Errorf("%s: %w", k.kind, err)
		}
	}
	return w, nil
}

// run writes at the rate until ctx is done.
func (w *kindWriter) run(ctx context.Context) error {
	if w.perSecond == 0 {
		return nil
	}
	limit := rate.NewLimiter(rate.Limit(w.perSecond), 1)
	for n := 0; limit.Wait(ctx) == nil; n++ {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, n)
		_, err := w.client.Patch(ctx, fmt.Sprint("bench-", n%writtenObjects), types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("%s: %w", w.kind, err)
		}
	}
	return nil
}
