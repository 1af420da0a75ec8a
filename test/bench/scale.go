package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"time"
)

// scaleOptions are what rows scale/* are measured with.
type scaleOptions struct {
	members, kinds, pods int
	updates              float64       // a second, over the fleet
	idle                 time.Duration // how long it is watched while idle
	perProcess           int           // members of a simulator
	hub                  string        // binary; built when empty
	library              bool          // what is ended evaluates the shipped policies
}

func (o *scaleOptions) register(fs *flag.FlagSet) {
	fs.IntVar(&o.members, "members", 250, "scale: members")
	fs.IntVar(&o.kinds, "kinds", 47, "scale: kinds that each member serves besides Event and Lease, nearly all of them empty")
	fs.IntVar(&o.pods, "pods", 300, "scale: pods of each member")
	fs.Float64Var(&o.updates, "updates", 0, "scale: pod updates a second, over the fleet, while policies are evaluated")
	fs.DurationVar(&o.idle, "idle", time.Minute, "scale: how long it is watched while idle; watches are reopened every 10 to 20 minutes")
	fs.IntVar(&o.perProcess, "per-simulator", 1000, "scale: members of a simulator's process, 3,000 at most")
	fs.BoolVar(&o.library, "library", false, "scale: end a process that evaluates the shipped policies, too")
	fs.StringVar(&o.hub, "federator", "", "scale: the binary that is measured; built from the tree when empty")
}

func (o *scaleOptions) scopes() float64 { return float64(o.members * o.kinds) }

// settleLimit is how long scopes may take to settle before a row is given up.
const settleLimit = 20 * time.Minute

// scaleFleet measures the command with a fleet of many members, most of whose kinds are
// empty: what it needs, how long it takes to settle, what it does when nothing happens.
func scaleFleet(ctx context.Context, b *bench) (rows []row, err error) {
	o := b.scaleOpts
	sims, err := b.simulators(ctx, o.members, o.kinds, o.pods, 3)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sims.stop()) }()
	h, err := b.startHub(ctx, sims, hubOptions{gogc: 100, profile: "settle"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.kill()) }()
	took, err := h.settled(ctx, o.members)
	if err != nil {
		return nil, err
	}
	at, err := h.usage()
	if err != nil {
		return nil, err
	}
	cpu := at.cpu
	idle, err := h.idle(ctx, o.idle)
	if err != nil {
		return nil, err
	}
	if at, err = h.usage(); err != nil {
		return nil, err
	}
	if path := b.profilePath("idle-cpu"); path != "" { // a minute, as watches get bookmarks together
		if err := h.fetch(ctx, h.admin+"/debug/pprof/profile?seconds=60", path); err != nil {
			return nil, err
		}
	}
	m, err := h.metrics(ctx)
	if err != nil {
		return nil, err
	}
	live, err := h.liveHeap(ctx, "idle")
	if err != nil {
		return nil, err
	}
	if _, err := h.idle(ctx, 30*time.Second); err != nil { // for the scavenger
		return nil, err
	}
	collected, err := h.usage()
	if err != nil {
		return nil, err
	}
	size := fmt.Sprintf("%d members x %d kinds, %d pods each", o.members, o.kinds, o.pods)
	theirs, err := sims.note()
	if err != nil {
		return nil, err
	}
	scopes := o.scopes()
	return []row{
		{Name: "scale/rss", Unit: "MiB", Value: at.rss / mib, Note: fmt.Sprintf("%s, GOGC=100, %v after settling; peak %.0f; goal at 1,000 x 100: 2,048; %s", size, o.idle, at.peak/mib, theirs)},
		{Name: "scale/rss_collected", Unit: "MiB", Value: collected.rss / mib, Note: "half a minute after a collection, which an idle process has every 2 minutes"},
		{Name: "scale/heap", Unit: "MiB", Value: m.sum("go_memstats_heap_alloc_bytes") / mib, Note: fmt.Sprintf("%.0f live, %.0f of stacks; the index accounts for %.0f", live/mib, m.sum("go_memstats_stack_inuse_bytes")/mib, m.sum("federator_index_bytes")/mib)},
		{Name: "scale/goroutines", Unit: "", Value: m.sum("go_goroutines"), Note: "goal at 1,000 x 100: 7,000"},
		{Name: "scale/descriptors", Unit: "", Value: at.descriptors, Note: "goal at 1,000 x 100: 3,500"},
		{Name: "scale/bytes_per_scope", Unit: "KB", Value: (at.rss - m.sum("federator_index_bytes")) / scopes / 1000, Note: fmt.Sprintf("RSS without the index by %.0f scopes; goal 4 and 64 a connection", scopes)},
		{Name: "scale/settle", Unit: "s", Value: took.Seconds(), Note: "until every scope is settled; goal at 1,000 x 100: 150"},
		{Name: "scale/settle_cpu", Unit: "CPU-s", Value: cpu, Note: "goal at 1,000 x 100: 80"},
		{Name: "scale/idle", Unit: "% of a core", Value: 100 * idle, Note: fmt.Sprintf("over %v: bookmarks, pings and the watches that end; goal at 1,000 x 100: 8", o.idle)},
		{Name: "scale/metrics_size", Unit: "MB", Value: float64(m.size) / 1e6, Note: fmt.Sprintf("%d series; goal at 1,000 x 100: 2", len(m.samples))},
	}, nil
}

// scalePolicies measures the same fleet with the shipped policies.
func scalePolicies(ctx context.Context, b *bench) ([]row, error) {
	o := b.scaleOpts
	got, err := b.evaluated(ctx, o.members, o.kinds, o.pods, hubOptions{gogc: 100, library: true, profile: "policies", updates: o.updates})
	if err != nil {
		return nil, err
	}
	size := fmt.Sprintf("%d members x %d kinds, %d pods each, shipped policies, %.0f updates/s", o.members, o.kinds, o.pods, o.updates)
	return []row{
		{Name: "scale/policies", Unit: "s", Value: got.took.Seconds(), Note: fmt.Sprintf("%s, until all of %.0f verdicts are known; %.0f CPU-s, scopes settled after %.1f s; goal at 1,000 x 100: 180", size, got.verdicts, got.cpu, got.settled.Seconds())},
		{Name: "scale/policies_rss", Unit: "MiB", Value: got.rss / mib, Note: fmt.Sprintf("GOGC=100, %.0f live, peak %.0f; %.0f violations; goal at 1,000 x 100: 3,072; %s", got.live/mib, got.peak/mib, got.violations, got.sims)},
	}, nil
}

// scaleViolations measures a smaller fleet with many objects and findings.
func scaleViolations(ctx context.Context, b *bench) ([]row, error) {
	members, pods := 100, b.n(3000)
	got, err := b.evaluated(ctx, members, 47, pods, hubOptions{gogc: 200, library: true, profile: "violations"})
	if err != nil {
		return nil, err
	}
	return []row{{
		Name: "scale/violations_rss", Unit: "MiB", Value: got.rss / mib,
		Note: fmt.Sprintf("%d members x 47 kinds, %d pods each, %.0f violations, GOGC=200; %.0f live, peak %.0f; known after %.1f s, %.0f CPU-s; goal 1,300 MB; %s",
			members, pods, got.violations, got.live/mib, got.peak/mib, got.took.Seconds(), got.cpu, got.sims),
	}}, nil
}

// evaluation is what a hub that evaluates policies has come to.
type evaluation struct {
	took, settled        time.Duration
	cpu, rss, peak, live float64
	verdicts, violations float64
	sims                 string
}

// evaluated runs the command with policies until all verdicts are known.
func (b *bench) evaluated(ctx context.Context, members, kinds, pods int, ho hubOptions) (out evaluation, err error) {
	sims, err := b.simulators(ctx, members, kinds, pods, 3)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, sims.stop()) }()
	if err := sims.tell("churn %g", ho.updates/float64(len(sims.processes))); err != nil {
		return out, err
	}
	h, err := b.startHub(ctx, sims, ho)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, h.kill()) }()
	if out.settled, err = h.settled(ctx, members); err != nil {
		return out, err
	}
	m, err := h.known(ctx, time.Second)
	if err != nil {
		return out, err
	}
	out.took = time.Since(h.started)
	out.verdicts, out.violations = m.sum("federator_policy_verdicts"), m.sum("federator_policy_violations")
	at, err := h.usage()
	if err != nil {
		return out, err
	}
	out.cpu = at.cpu
	if _, err := h.idle(ctx, 30*time.Second); err != nil {
		return out, err
	}
	if at, err = h.usage(); err != nil {
		return out, err
	}
	out.rss, out.peak = at.rss, at.peak
	if out.live, err = h.liveHeap(ctx, ho.profile); err != nil {
		return out, err
	}
	out.sims, err = sims.note()
	return out, err
}

// profilePath is where a profile goes, "" for nowhere.
func (b *bench) profilePath(name string) string {
	if b.profiles == "" {
		return ""
	}
	return filepath.Join(b.profiles, name+".pprof")
}
